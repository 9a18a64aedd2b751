package main

// What the border calls is exported by a package that is generated.
import _ "acme/exports/wit_exports"

func main() {}
