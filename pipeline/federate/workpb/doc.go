// Package workpb defines the protobuf messages between a server and its workers, generated from
// work.proto by `make generate`.
package workpb
