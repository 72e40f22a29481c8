// Package uploadpb defines the protobuf message of an upload, generated from upload.proto by `make
// generate`.
package uploadpb
