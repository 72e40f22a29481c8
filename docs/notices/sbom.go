package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"fmp/assets"
	version "fmp/cmd/buildinfo"
	"fmp/pipeline/shipped"
)

// writeSBOM writes FILE.cdx.json beside the file of a program: its components, in CycloneDX 1.6.
func writeSBOM(program string, mods map[string]*module) error {
	bi, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("sbom: %s: %w", program, err)
	}
	f, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("sbom: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("sbom: %w", err)
	}
	data, err := sbom(filepath.Base(bi.Path), bi, hex.EncodeToString(h.Sum(nil)), mods)
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(program, ".exe")+".cdx.json", data, 0o644)
}

// sbom returns the bill of materials of a program: the modules that the Go tool recorded in it, the
// fonts whose outlines it has, and the models that it embeds. The same program gives the same
// bytes.
func sbom(program string, bi *debug.BuildInfo, digest string,
	mods map[string]*module) ([]byte, error) {
	main := cdx.Component{BOMRef: program, Type: cdx.ComponentTypeApplication, Name: program,
		Version: version.Version(bi),
		Hashes:  sha256Of(digest), Licenses: licences("MIT")}
	parts := []cdx.Component{{BOMRef: "pkg:golang/stdlib@" + bi.GoVersion,
		Type: cdx.ComponentTypeLibrary, Name: "stdlib",
		Version:    bi.GoVersion,
		PackageURL: "pkg:golang/stdlib@" + strings.TrimPrefix(bi.GoVersion, "go"),
		Licenses:   licences("BSD-3-Clause")}}
	have := map[string]bool{}
	for _, m := range bi.Deps {
		// A replaced module is listed by the one that is linked in its place.
		if m.Replace != nil {
			m = m.Replace
		}
		if mods[m.Path] == nil { // a folder of this project in place of a module
			continue
		}
		have[m.Path] = true
		parts = append(parts, library(m.Path, m.Version, mods[m.Path].ids))
	}
	// parts that are embedded of modules that are not linked: outlines of fonts
	for path, m := range mods {
		if !have[path] && slices.ContainsFunc(outlined,
			func(f string) bool { return strings.HasPrefix(f, path) }) &&
			slices.Contains(m.programs, program) {
			parts = append(parts, library(path, m.version, m.ids))
		}
	}
	if program == "fmp" {
		shipped, err := embeddedModels()
		if err != nil {
			return nil, err
		}
		parts = append(parts, shipped...)
	}
	// The map has no order, and equal programs are to give equal bytes.
	slices.SortFunc(parts, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	refs := make([]string, len(parts))
	for i, p := range parts {
		refs[i] = p.BOMRef
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	// The time is the commit's and not that of the call, for the same reason.
	for _, s := range bi.Settings {
		if s.Key == "vcs.time" {
			bom.Metadata.Timestamp = s.Value
		}
	}
	bom.Components, bom.Dependencies = &parts,
		&[]cdx.Dependency{{Ref: program, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("sbom: %s: %w", program, err)
	}
	return b.Bytes(), nil
}

// library is the component of a module, named by its package URL.
func library(path, version string, ids []string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: url,
		Licenses:   licences(ids...)}
}

// embeddedModels returns a component for each model in assets, which is run from the root of the
// source.
func embeddedModels() ([]cdx.Component, error) {
	var out []cdx.Component
	for _, dataset := range assets.Datasets() {
		for _, kind := range assets.Kinds(dataset) {
			_, f, err := shipped.Load(dataset, kind)
			if err != nil {
				return nil, fmt.Errorf("sbom: %w", err)
			}
			c := cdx.Component{BOMRef: "model:" + dataset + "/" + kind,
				Type: cdx.ComponentTypeMachineLearningModel, Group: dataset, Name: kind,
				MIMEType: "application/onnx", Hashes: sha256Of(f.Digest), Licenses: licences(
					f.Licence), ModelCard: &cdx.MLModelCard{ModelParameters: &cdx.MLModelParameters{
					Datasets: &[]cdx.MLDatasetChoice{
						{ComponentData: &cdx.ComponentData{Type: cdx.ComponentDataTypeDataset,
							Name: dataset, Description: f.TrainingData}}}}}}
			if f.Command != "" {
				c.Properties = &[]cdx.Property{{Name: "fmp:command", Value: f.Command}}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// sha256Of is a digest, in hexadecimal, as CycloneDX has it.
func sha256Of(digest string) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: digest}}
}

// notSPDX are licences that the SPDX list lacks; CycloneDX has names for them.
var notSPDX = []string{"GFL", "LicenseRef-Gorgonia-1.0", "patent grant"}

// licences are licences by their SPDX identifiers or, where SPDX has none, by their names.
func licences(ids ...string) *cdx.Licenses {
	var out cdx.Licenses
	for _, id := range ids {
		// as in the manifests of models that were trained with the title of LICENSE
		id = strings.TrimSuffix(id, " License")
		l := &cdx.License{ID: id}
		if slices.Contains(notSPDX, id) {
			l = &cdx.License{Name: id}
		}
		out = append(out, cdx.LicenseChoice{License: l})
	}
	return &out
}
