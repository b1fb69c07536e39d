// Before the first paint: the theme that was chosen here, else the system's.
(function () {
  const chosen = localStorage.getItem("shoal-theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };
  apply(chosen || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => {
    if (!localStorage.getItem("shoal-theme")) {
      apply(system.matches ? "dark" : "light");
      document.dispatchEvent(new Event("themechange"));
    }
  });
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      localStorage.setItem("shoal-theme", next);
      apply(next);
      document.dispatchEvent(new Event("themechange"));
    });
  });
})();
