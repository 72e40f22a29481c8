// Package serverpb defines the protobuf messages of servers and their workers: states of package
// stats, parts of package merge, and jobs' inputs and answers of package work. It is generated from
// server.proto by `make generate`. Small devices, which read none of them, do not link it.
package serverpb
