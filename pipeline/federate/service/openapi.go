package service

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPI serves the OpenAPI specification of the interface.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPISource)
}
