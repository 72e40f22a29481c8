package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"fmp/assets"
	"fmp/models"
	"fmp/models/serving"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// schema is the schema of CycloneDX 1.6, from the sources of the library.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/CycloneDX/cyclonedx-go").Output())(t)
	c := jsonschema.NewCompiler()
	for name, file := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json",
		"spdx.schema.json":     "spdx.schema.json",
		"jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		f := must.Get(os.Open(filepath.Join(strings.TrimSpace(string(dir)), "schema", file)))(t)
		defer f.Close()
		doc := must.Get(jsonschema.UnmarshalJSON(f))(t)
		must.Do(t, c.AddResource("http://cyclonedx.org/schema/"+name, doc))
	}
	return must.Get(c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json"))(t)
}

// document returns a bill of materials that is valid by the schema.
func document(t *testing.T, valid *jsonschema.Schema, data []byte) *cdx.BOM {
	t.Helper()
	if err := valid.Validate(must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(data)))(t)); err != nil {
		t.Error(err)
	}
	bom := new(cdx.BOM)
	must.Do(t, json.Unmarshal(data, bom))
	return bom
}

// TestSBOM: the bills of materials of both programs are valid CycloneDX, name every module that is
// linked and every model in assets, with its digest, licence and training data, and are the same
// for the same program.
func TestSBOM(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	root := filepath.Join("..", "..")
	mods := must.Get(ours())(t)
	valid := schema(t)
	for _, p := range programs {
		file := filepath.Join(t.TempDir(), p.name)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", file, "./cmd/"+p.name)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var data [2][]byte
		for i := range data {
			must.Do(t, writeSBOM(file, mods))
			data[i] = must.Get(os.ReadFile(file + ".cdx.json"))(t)
		}
		if !bytes.Equal(data[0], data[1]) {
			t.Errorf("%s: the same program gives two documents", p.name)
		}
		bom := document(t, valid, data[0])
		checkModules(t, file, bom)
		if listed := checkModels(t, bom); p.name == "fmp" && listed != modelFiles(t) ||
			p.name == "fmp-edge" && listed != 0 {
			t.Errorf("%s lists %d models", p.name, listed)
		}
	}
}

func checkModules(t *testing.T, file string, bom *cdx.BOM) {
	t.Helper()
	bi, err := buildinfo.ReadFile(file)
	if err != nil || len(bi.Deps) == 0 {
		t.Fatalf("%v: %v", bi, err)
	}
	for _, m := range bi.Deps {
		if m.Replace != nil { // by a folder of this project
			continue
		}
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool {
			return c.PackageURL == "pkg:golang/"+m.Path+"@"+m.Version && len(*c.Licenses) > 0
		}) {
			t.Errorf("%s lacks %s %s, or its licence", file, m.Path, m.Version)
		}
	}
}

// checkModels counts the models of a document and holds each to the file.
func checkModels(t *testing.T, bom *cdx.BOM) (listed int) {
	t.Helper()
	for _, c := range *bom.Components {
		if c.Type != cdx.ComponentTypeMachineLearningModel {
			continue
		}
		listed++
		data := must.Get(assets.Model(c.Group, c.Name))(t)
		if got := (*c.Hashes)[0].Value; got != models.DigestBytes(data) {
			t.Errorf("%s: digest %s", c.BOMRef, got)
		}
		if training := (*c.ModelCard.ModelParameters.Datasets)[0].ComponentData.Description; training == "" ||
			(*c.Licenses)[0].License.ID != "MIT" {
			t.Errorf("%s: training data %q, licence %v", c.BOMRef, training, (*c.Licenses)[0].License)
		}
	}
	return listed
}

// modelFiles counts the files of models in the source.
func modelFiles(t *testing.T) int {
	t.Helper()
	n := 0
	for _, packed := range []string{"*.planes", "*.zst"} { // as assets.go embeds them
		files, err := filepath.Glob(filepath.Join("..", "..", "assets", "models", "*", packed))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		n += len(files)
	}
	return n
}

// TestModelSBOM: the bill of materials of a packaged classifier is valid CycloneDX, and has the
// digest of its file.
func TestModelSBOM(t *testing.T) {
	m := must.Get(models.NewClassifier(models.ClassifierParts{Heads: onnx.NewTensor([]float64{1, 0, 0, 1}, 1, 2, 2)},
		models.Manifest{Licence: "CC-BY-4.0", TrainingData: "none",
			Extractor: strings.Repeat("ab", 32)}))(t)
	file := must.Get(serde.Marshal(m))(t)
	dir := filepath.Join(t.TempDir(), "package")
	must.Get(serving.Write(dir, file,
		serving.Options{Name: "classifier", Version: "1", Batch: 1, Instances: 1}))(t)
	data := must.Get(os.ReadFile(filepath.Join(dir, "sbom.cdx.json")))(t)
	bom := document(t, schema(t), data)
	c := bom.Metadata.Component
	if got := (*c.Hashes)[0].Value; got != models.DigestBytes(file) ||
		(*c.Licenses)[0].License.Name != "CC-BY-4.0" ||
		len(*bom.Components) != 1 {
		t.Errorf("%s, %v, %v", got, *c.Licenses, bom.Components)
	}
}
