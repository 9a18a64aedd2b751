module acme

go 1.24

require go.bytecodealliance.org/pkg v0.0.0

replace go.bytecodealliance.org/pkg => ./support
