// Package uploadpb is an upload on the wire, generated from upload.proto by `make generate`.
package uploadpb
