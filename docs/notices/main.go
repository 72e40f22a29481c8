// Command notices writes the notices of everything by others that is linked into the programs or
// embedded in them:
//
//	go run ./docs/notices THIRD_PARTY.md
//	go run ./docs/notices -sbom bin/fmp bin/fmp-edge
//
// The second form writes a bill of materials beside each program, in CycloneDX (bin/fmp.cdx.json).
//
// It asks the go tool which modules the programs are made of, on every platform that they are built
// for, and takes the licences from the modules' own files.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"fmp/onnx/atomicfile"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// write writes the notices, or the bills of materials of programs. Either form lists the modules
// first, by the go tool.
func write(args []string) error {
	if len(args) < 1 || args[0] != "-sbom" && len(args) > 1 {
		return errors.New("give the file to write, THIRD_PARTY.md, or -sbom and programs")
	}
	mods, err := modules(".")
	if err != nil {
		return err
	}
	if args[0] != "-sbom" {
		text, err := noticesOf(mods)
		if err != nil {
			return err
		}
		return atomicfile.WriteBytes(args[0], text)
	}
	for _, program := range args[1:] {
		if err := writeSBOM(program, mods); err != nil {
			return err
		}
	}
	return nil
}

// programs are the programs shipped, with the platforms that they are built for.
var programs = []struct {
	name    string
	systems []string
}{
	{"fmp", []string{"linux", "darwin", "windows"}},
	{"fmp-edge", []string{"linux", "darwin", "windows"}},
}

// outlined are fonts that fmp holds the digits' outlines of (featurize/digits/outlines.txt.gz).
var outlined = []string{"codeberg.org/go-fonts/dejavu/dejavusans",
	"codeberg.org/go-fonts/latin-modern/lmroman10regular",
	"golang.org/x/image/font/gofont/goregular"}

// embedded lists the files derived from the work of others that are no modules.
const embedded = `Besides modules:

* ` + "`onnx/onnxpb/onnx.proto`" + `, and the facts of operators in ` + "`onnx/op`" + `, are made from the definitions of the Open
  Neural Network Exchange (https://github.com/onnx/onnx), copyright ONNX Project Contributors, under the Apache License 2.0 (below).
* The ONNX Runtime (https://github.com/microsoft/onnxruntime, MIT License, copyright Microsoft Corporation) is loaded where it is
  installed. Archives of releases for Linux have it beside fmp, with its licence.
* The models that are embedded were trained by this project; each says in its metadata on which data.
`

// module is a module by others: its folder in the cache of the Go tool, and the programs that link
// it.
type module struct {
	path, version, dir string
	programs           []string
	files              map[string][]byte // licences and notices, by name
	ids                []string          // SPDX
}

// modules returns the modules linked by the programs of the source in folder root, on every
// platform.
func modules(root string) (map[string]*module, error) {
	mods := map[string]*module{}
	for _, p := range programs {
		for _, system := range p.systems {
			if err := list(root, p.name, system, mods); err != nil {
				return nil, err
			}
		}
	}
	return mods, nil
}

// noticesOf returns the text for modules; each must have a licence, in UTF-8. Texts are compared by
// their SHA-256, and modules are in the order of their paths: the same modules give the same bytes.
func noticesOf(mods map[string]*module) ([]byte, error) {
	var all []*module
	for _, path := range slices.Sorted(maps.Keys(mods)) {
		m := mods[path]
		if len(m.files) == 0 {
			return nil, fmt.Errorf("%s %s comes without a licence", m.path, m.version)
		}
		all = append(all, m)
	}
	var b bytes.Buffer
	b.WriteString("# Third-party notices\n\nWhat `fmp` and `fmp-edge` contain of the work of " +
		"others, and on which terms. Made by `make docs` from the modules themselves.\n\n")
	b.WriteString("| module | version | licence | in |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.path, m.version, strings.Join(m.ids, ", "),
			strings.Join(m.programs, ", "))
	}
	b.WriteString("\n" + embedded)
	// Equal texts stand once.
	type text struct {
		body []byte
		of   []string
	}
	var texts []*text
	at := map[[sha256.Size]byte]*text{}
	for _, m := range all {
		for _, n := range slices.Sorted(maps.Keys(m.files)) {
			sum := sha256.Sum256(m.files[n])
			if at[sum] == nil {
				at[sum] = &text{body: m.files[n]}
				texts = append(texts, at[sum])
			}
			at[sum].of = append(at[sum].of, m.path+" ("+n+")")
		}
	}
	for _, t := range texts {
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", strings.Join(t.of, ", "), t.body)
	}
	return b.Bytes(), nil
}

// known are licences by a phrase that no other of them has, the longer ones of a family first;
// names are SPDX's.
var known = []struct{ id, phrase string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"OFL-1.1", "SIL OPEN FONT LICENSE"},
	{"FTL", "The FreeType Project LICENSE"},
	// or the GPL, as one chooses
	{"FTL", "The FreeType License, which is similar to the original BSD license"},
	{"Bitstream-Vera", "Bitstream Vera Fonts Copyright"},
	{"LPPL-1.3c", "LaTeX Project Public License"},
	{"GFL", "GUST Font License"},
	{"CC0-1.0", "CC0 1.0 Universal"},
	{"LicenseRef-Gorgonia-1.0", "Gorgonia License, Version 1.0"},
	{"CC-BY-4.0", "Creative Commons Attribution 4.0 International"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
	{"Unlicense", "This is free and unencumbered software"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "may be used to endorse or promote products"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms, with or without"},
	{"patent grant", "Additional IP Rights Grant (Patents)"},
}

// licenceName matches the names of files with terms.
var licenceName = regexp.MustCompile(
	`(?i)^(licen[cs]e|copying|notice|copyright|patents|ftl)([-._].*)?$`)

// list adds the modules of one program on one system. fmp-edge is built without C, and fmp with it,
// which decides on the packages linked.
func list(root, program, system string, mods map[string]*module) error {
	args := []string{"list", "-deps", "-json=Dir,Standard,Module", "./cmd/" + program}
	if program == "fmp" {
		args = append(args, outlined...)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cgo := "CGO_ENABLED=1"
	if program == "fmp-edge" {
		cgo = "CGO_ENABLED=0"
	}
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing what %s is made of on %s: %w\n%s", program, system,
			err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Version string }
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("listing what %s is made of on %s: %w", program, system, err)
		}
		// a folder in place of a module is ours
		if p.Standard || p.Module == nil || p.Module.Main || p.Module.Replace != nil &&
			p.Module.Replace.Version == "" {
			continue
		}
		m := mods[p.Module.Path]
		if m == nil {
			m = &module{path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir,
				files: map[string][]byte{}}
			mods[m.path] = m
		}
		if !slices.Contains(m.programs, program) {
			m.programs = append(m.programs, program)
		}
		// A package may have terms of its own, beside those of its module.
		for dir := p.Dir; ; dir = filepath.Dir(dir) {
			if err := m.read(dir); err != nil {
				return err
			}
			if dir == m.dir || len(dir) <= len(m.dir) {
				break
			}
		}
		if err := m.read(filepath.Join(m.dir, "licenses")); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// read takes the licences and notices of one folder. Phrases are looked for in the words of a text,
// across its line breaks.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceName.MatchString(e.Name()) ||
			strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		name, err := filepath.Rel(m.dir, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if m.files[name] != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		data = inUTF8(data)
		m.files[name] = bytes.ReplaceAll(bytes.TrimSpace(data), []byte("\r\n"), []byte("\n"))
		text := strings.Join(strings.Fields(string(data)), " ")
		for _, k := range known {
			if strings.Contains(text, k.phrase) && !slices.Contains(m.ids, k.id) {
				m.ids = append(m.ids, k.id)
				break
			}
		}
	}
	return nil
}

// inUTF8 returns a text in UTF-8: as it is, or from ISO 8859-1, in which some old licences have
// their ©.
func inUTF8(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	runes := make([]rune, len(text))
	for i, b := range text {
		runes[i] = rune(b)
	}
	return []byte(string(runes))
}
