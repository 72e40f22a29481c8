// Package page is the client and the classifier for browsers: pages that run the program of
// cmd/fmp-page in a Web Worker. The pages are part of this package; the program is not, for its
// size: make page writes a folder with both.
package page

import (
	"bytes"
	"embed"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"fmp/onnx/regularfile"
	"fmp/onnx/simd"
	"fmp/pipeline/internal/design"
)

//go:embed static
var static embed.FS

// Program is the name of the file with the program, and loader that of Go's part of it.
const Program, loader = "fmp.wasm.gz", "wasm_exec.js"

// maxFile bounds a file of a folder: 16 MiB.
const maxFile = 16 << 20

// policy lets a page run its own scripts and the program, and speak to the server that it came
// from.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; " +
	"img-src 'self' blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action " +
	"'none'; frame-ancestors 'none'"

// types are the media types of the files, which the system's tables may lack.
var types = map[string]string{".html": "text/html; charset=utf-8",
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".gz": "application/octet-stream",
	"": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8"}

// Handler serves the files under their names. folder, as make page writes it, may be empty: the
// pages are then without the program, and say so.
func Handler(folder string) (http.Handler, error) {
	files, err := embedded()
	if folder != "" {
		files, err = load(folder)
	}
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/") {
			name = "index.html"
		}
		data, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}), nil
}

// pages are the names of the files that are part of this package, sorted. A program that only
// copies a folder does not hold the files themselves: fmp-edge is kept small.
var pages = []string{"common.js", "design.css", "fixed.js", "icon.svg", "index.html", "join.js",
	"page.css", "photos.js", "predict.html", "predict.js", "server.js", "vector.js", "words.de.json",
	"words.en.json", "words.es.json", "words.fr.json", "words.js", "words.zh.json", "worker.js"}

// embedded returns the pages of this package.
func embedded() (map[string][]byte, error) {
	entries, err := static.ReadDir("static")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"design.css": []byte(design.CSS), "vector.js": simd.Script}
	for _, e := range entries {
		if files[e.Name()], err = static.ReadFile("static/" + e.Name()); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// load returns the pages and the program of a folder.
func load(folder string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range append([]string{Program, loader, "LICENSE", "THIRD_PARTY.md"}, pages...) {
		data, err := regularfile.ReadFile(path.Join(folder, name), maxFile)
		if err != nil {
			return nil, fmt.Errorf("page %s: %w; make page writes such a folder", folder, err)
		}
		files[name] = data
	}
	return files, nil
}
