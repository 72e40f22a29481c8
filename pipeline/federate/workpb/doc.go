// Package workpb is what a server and its workers say to each other, on the wire, generated from work.proto by `make generate`.
package workpb
