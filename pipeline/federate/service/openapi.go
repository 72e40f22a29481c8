package service

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openAPISource []byte

// openAPI is the interface as OpenAPI states it.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPISource)
}
