package main

// A generated package exports the functions that the host calls.
import _ "acme/exports/wit_exports"

func main() {}
