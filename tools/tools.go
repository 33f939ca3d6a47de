// Package tools holds nothing: its go.mod pins the programs that build and check Rohrpost. It lies outside go.work, since
// buf needs a pre-release of protobuf.
package tools
