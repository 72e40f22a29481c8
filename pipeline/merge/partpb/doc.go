// Package partpb defines the protobuf message of a part, generated from part.proto by `make
// generate`.
package partpb
