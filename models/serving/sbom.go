package serving

import (
	"encoding/json"

	"fmp/models"
)

// bom is a bill of materials in CycloneDX 1.6 (cyclonedx.org/docs/1.6/json): the fields that a
// model needs.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components,omitempty"`
	Dependencies []dependency `json:"dependencies,omitempty"`
}

// bomMetadata names the thing that the bill is of.
type bomMetadata struct {
	Component component `json:"component"`
}

// component is a model or a network. Its Ref is unique in the bill.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licences   []licence  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licence struct {
	Licence struct {
		Name string `json:"name"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// dependency says that the component Ref uses those of On.
type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn,omitempty"`
}

// machineLearningModel is the type of a component in CycloneDX.
const machineLearningModel = "machine-learning-model"

// billOfMaterials lists a classifier, by the digest of its file, and the extractor in it. Equal
// options and files give equal bytes, as it has no time and no serial number. Licences are stated
// by name, since a manifest's text need be no SPDX identifier.
func billOfMaterials(o Options, f models.Manifest, digest string) ([]byte, error) {
	model := component{Type: machineLearningModel, Ref: "sha256:" + digest, Name: o.Name,
		Version: o.Version}
	model.Hashes = []hash{{"SHA-256", digest}}
	if f.Licence != "" {
		model.Licences = make([]licence, 1)
		model.Licences[0].Licence.Name = f.Licence
	}
	for _, p := range []property{{"fmp:training_data", f.TrainingData},
		{"fmp:command", f.Command}} {
		if p.Value != "" {
			model.Properties = append(model.Properties, p)
		}
	}
	doc := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: bomMetadata{model}}
	if f.Extractor != "" {
		// The digest is of the network's computation, not of a file.
		e := component{Type: machineLearningModel, Ref: "network:" + f.Extractor, Name: "extractor"}
		e.Properties = []property{{"fmp:extractor_digest", f.Extractor}}
		doc.Components = []component{e}
		doc.Dependencies = []dependency{{Ref: model.Ref, On: []string{e.Ref}}, {Ref: e.Ref}}
	}
	return json.MarshalIndent(doc, "", "  ")
}
