"""Makes the ASGI application: its routes, how errors are answered, and its OpenAPI."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from shoal_contract.errors import ShoalError
from shoal_ops.http import (
    problem,
    routes_admin,
    routes_messages,
    routes_process,
    routes_queues,
    routes_transactions,
    routes_watches,
)
from shoal_ops.http.gate import Gate
from shoal_ops.http.gateway import Gateway
from shoal_ops.http.parameters import known_queries, only_known_queries
from shoal_ops.http.token import Token
from shoal_runtime.http.problem import answer_error

DESCRIPTION: Final = """The broker over plain HTTP, and its administration.

Names in paths are percent-encoded (`%2F` for a slash) and may hold any bytes; in JSON they are text, with `*_encoded`
beside it where they are not UTF-8. Errors are `application/problem+json`."""


def new_application(gateway: Gateway, token: Token) -> Gate:
    """Returns the application, to be served once `gateway` is open. The gate checks the token; FastAPI only describes
    it."""
    application = FastAPI(
        title="Shoal",
        version=version("shoal"),
        description=DESCRIPTION,
        openapi_url=None,  # FastAPI would make the document anew for each request (`_serve_openapi`).
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_name,
        exception_handlers={
            ShoalError: answer_error,
            HTTPException: problem.answer_http_exception,
            RequestValidationError: problem.answer_validation,
            Exception: problem.answer_bug,
        },
    )
    application.state.gateway = gateway
    bearer = Depends(HTTPBearer(auto_error=False, description="the token of --token-file or SHOAL_ADMIN_TOKEN"))
    routers = (
        routes_queues.router,
        routes_messages.router,
        routes_transactions.router,
        routes_watches.router,
        routes_admin.router,
    )
    for router in routers:
        _include(application, router, dependencies=[bearer, Depends(only_known_queries)])
    _include(application, routes_process.router)
    application.state.routes = [route for router in (*routers, routes_process.router) for route in router.routes]
    schema = _without_422(application)
    application.state.queries = known_queries(schema)
    _serve_openapi(application, schema)
    application.mount("/page", StaticFiles(directory=routes_process.PAGE))
    return Gate(application, token, gateway.metrics, lambda: gateway.is_leaving())


def _include(application: FastAPI, router: APIRouter, **more: Any) -> None:
    application.include_router(router, responses=problem.responses(), **more)


def _serve_openapi(application: FastAPI, schema: dict[str, Any]) -> None:
    """Adds a route for the schema, which is made bytes here, once: that takes 6 ms of the loop."""
    document = JSONResponse(schema).body

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    application.add_route("/openapi.json", openapi, include_in_schema=False)


def _without_422(application: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI schema without FastAPI's 422. The gateway answers a request that does not fit with 400 and a
    problem."""
    schema = FastAPI.openapi(application)
    for methods in schema["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for form in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(form, None)
    return schema


def _name(route: APIRoute) -> str:
    return route.name
