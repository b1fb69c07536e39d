// etcd as its authors release it, built from its published source: `make etcd` puts it into .tools/.
//
// Nothing but the entry point belongs here. The version is the one of go.mod.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
