// Package op defines every operator: its inputs and outputs, their element types, its attributes
// and their defaults, for every version of the standard operator set, and for the operators of
// com.microsoft that exporters write. All that read a node (shape rules, gradients, kernels,
// passes, checks) ask here, so that nothing of it is stated twice.
//
// The facts stand in schemas.txt, which a maintainer's script writes from the registries of those
// who define the operators: the ONNX standard's own (the Python package onnx) and the ONNX
// Runtime's. To take in a new version, install both and run `go generate ./onnx/op`; the script is
// testdata/registry.py, and nothing but the file that it writes is part of a program.
package op

//go:generate sh -c "python3 testdata/registry.py > schemas.txt && gzip -9nc schemas.txt > schemas.txt.gz"

import (
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fmp/onnx"
	"fmp/onnx/suggest"
)

// packed is schemas.txt, gzipped; a test holds them together.
//
//go:embed schemas.txt.gz
var packed string

// text returns schemas.txt. It is unpacked once, when a schema is first asked for.
func text() (string, error) {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(r)
	return string(data), err
}

// Schema is an operator as the operator sets from Since on define it, until the next version.
type Schema struct {
	Domain, Name string
	Since        int
	Deprecated   bool // the operator is gone, and the rest is empty
	In, Out      []Param
	Attrs        []Attribute // in alphabetical order
}

// Param is a formal parameter: an input or an output. Parameters of one type variable have one type
// in a node.
type Param struct {
	Name     string
	Type     string  // a type variable, or the name of an element type
	Types    TypeSet // what may stand for it
	Optional bool
	Variadic bool // the last one; it stands for Least or more values
	Least    int
	Mixed    bool // the values of a variadic one may differ in type
}

// Attribute is an attribute as the operator's definition has it.
type Attribute struct {
	Name     string
	Kind     onnx.AttrKind
	Required bool
	Default  *onnx.Attr // nil where there is none
	Words    []string   // that a string may be, `""` for the empty one; nil where any may
}

// TypeSet is a set of element types. Bit d is element type d; bit 0, Undefined's, stands for
// others.
type TypeSet uint64

// others stands for the types that package onnx does not hold: sequences, maps, complex numbers, 8
// bits and less.
const others TypeSet = 1

// Has reports whether the set holds d. It is false of Undefined and of numbers that name no type.
func (t TypeSet) Has(d onnx.DType) bool { return d > onnx.Undefined && d < 64 && t&(1<<d) != 0 }

// String lists the set: "float32, float64 or int64".
func (t TypeSet) String() string {
	var names []string
	for d := onnx.DType(1); d < 64; d++ {
		if t.Has(d) {
			names = append(names, d.String())
		}
	}
	if t&others != 0 {
		names = append(names, "a type that is not supported here")
	}
	return suggest.Or(names...)
}

type key struct{ domain, name string }

// schemas holds the versions of each operator, oldest first. Several goroutines may ask at a time:
// the first parses, and the others wait.
var schemas = sync.OnceValue(func() map[key][]*Schema {
	t, err := text()
	if err != nil {
		panic(err) // as below
	}
	s, err := parse(t)
	if err != nil {
		panic(err) // the embedded file is not as it was written; a test reads it
	}
	return s
})

// Lookup returns the schema of an operator in version opset of its domain's operator set; nil where
// the operator is not known or came later. The result is shared and must not be changed. It returns
// a deprecated schema as well, which has neither operands nor attributes.
func Lookup(domain, name string, opset int) *Schema {
	var found *Schema
	for _, s := range schemas()[key{domain, name}] {
		if s.Since <= opset {
			found = s
		}
	}
	return found
}

// Last returns as [Lookup] does, and for an operator that is deprecated its last definition.
func Last(domain, name string, opset int) *Schema {
	s := Lookup(domain, name, opset)
	if s != nil && s.Deprecated {
		return Lookup(domain, name, s.Since-1)
	}
	return s
}

// Find returns the schema of a node's operator in a model of the given operator sets; nil where it
// is not known. opsets is by domain; "ai.onnx" is the standard's other name. A domain without an
// entry has version 0, of which no operator is.
func Find(n *onnx.Node, opsets map[string]int64) *Schema {
	v, ok := opsets[n.Domain]
	if !ok && n.Domain == "" {
		v = opsets["ai.onnx"]
	}
	return Lookup(n.Domain, n.Op, int(min(v, 1<<30)))
}

// extended are the standard operator sets, from one and below another, in which the ONNX Runtime has an
// operator of its own under a name of the standard domain. Its optimiser and early converters write them.
var extended = map[string]struct{ from, below int }{
	"LayerNormalization": {1, 17}, "SimplifiedLayerNormalization": {1, math.MaxInt}, "GroupNormalization": {18, 21},
	"ThresholdedRelu": {1, 10}, "Affine": {1, math.MaxInt}, "Crop": {1, math.MaxInt},
	"DynamicSlice": {1, math.MaxInt}, "ImageScaler": {1, math.MaxInt},
	"ParametricSoftplus": {1, math.MaxInt}, "Scale": {1, math.MaxInt}, "ScaledTanh": {1, math.MaxInt},
}

// Extended reports whether the ONNX Runtime runs an operator by a name of the standard domain that the
// standard does not have in version opset, or has withdrawn.
func Extended(name string, opset int) bool {
	sets := extended[name]
	return opset >= sets.from && opset < sets.below
}

// Versions lists the operator's versions, oldest first; none where it is not known. The slice is
// the caller's; the schemas are shared and must not be changed.
func Versions(domain, name string) []*Schema { return slices.Clone(schemas()[key{domain, name}]) }

// Names lists a domain's operators in alphabetical order. The slice is the caller's. "" is the
// standard operator set.
func Names(domain string) []string { return slices.Clone(names()[domain]) }

// names are the operators of each domain, sorted once: a model's check asks for each of its nodes.
var names = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for k := range schemas() {
		all[k.domain] = append(all[k.domain], k.name)
	}
	for _, of := range all {
		slices.Sort(of)
	}
	return all
})

// Input returns the formal parameter of input i; ok is false where there are not as many.
func (s *Schema) Input(i int) (p Param, ok bool) { return at(s.In, i) }

// Output returns the formal parameter of output i; ok is false where there are not as many.
func (s *Schema) Output(i int) (p Param, ok bool) { return at(s.Out, i) }

// at is the formal parameter of operand i, the last for all that a variadic one takes.
func at(ps []Param, i int) (Param, bool) {
	if i < len(ps) {
		return ps[i], true
	}
	if n := len(ps); n > 0 && ps[n-1].Variadic {
		return ps[n-1], true
	}
	return Param{}, false
}

// Attr finds an attribute's definition; nil where the operator has none of that name. It is shared
// and must not be changed.
func (s *Schema) Attr(name string) *Attribute {
	for i := range s.Attrs {
		if s.Attrs[i].Name == name {
			return &s.Attrs[i]
		}
	}
	return nil
}

// Bind finds the element types of a node's outputs from those of its inputs: Undefined where they
// do not follow. An input whose type is Undefined is left out or not known. An input of a type that
// the operator does not take, or of another one than a neighbour that must have the same, is an
// error. The result is the caller's, of as many types as there are outputs.
func (s *Schema) Bind(in []onnx.DType, outputs int) ([]onnx.DType, error) {
	bound := map[string]onnx.DType{}
	first := map[string]int{}
	for i, d := range in {
		p, ok := s.Input(i)
		if !ok || d == onnx.Undefined {
			continue
		}
		if !p.Types.Has(d) {
			return nil, fmt.Errorf("input %d (%s) is of %v; allowed are %v", i, p.Name, d, p.Types)
		}
		if p.Mixed {
			continue
		}
		if have, ok := bound[p.Type]; ok && have != d {
			return nil,
				fmt.Errorf(
					"input %d (%s) is of %v and input %d of %v; they must have one type, cast "+
						"one of them", i,
					p.Name, d, first[p.Type], have)
		}
		bound[p.Type], first[p.Type] = d, i
	}
	out := make([]onnx.DType, outputs)
	for i := range out {
		if p, ok := s.Output(i); ok && !p.Mixed {
			if out[i] = bound[p.Type]; out[i] == onnx.Undefined {
				out[i] = p.Types.only()
			}
		}
	}
	return out, nil
}

// only is the one type of a set of one.
func (t TypeSet) only() onnx.DType {
	for d := onnx.DType(1); d < 64; d++ {
		if t == 1<<d {
			return d
		}
	}
	return onnx.Undefined
}

var kinds = map[string]onnx.AttrKind{
	"float": onnx.AttrFloat, "int": onnx.AttrInt, "string": onnx.AttrString, "tensor": onnx.AttrTensor,
	"graph":  onnx.AttrGraph,
	"floats": onnx.AttrFloats, "ints": onnx.AttrInts, "strings": onnx.AttrStrings,
	"tensors": onnx.AttrTensors, "graphs": onnx.AttrGraphs,
	// A kind that package onnx does not hold; a node with such an attribute cannot be loaded.
	"sparse_tensor": onnx.AttrUndefined, "type_proto": onnx.AttrUndefined,
}

// dtypes holds the element types by their names.
var dtypes = func() map[string]TypeSet {
	out := map[string]TypeSet{}
	for d := onnx.DType(1); d < 64; d++ {
		out[d.String()] = 1 << d
	}
	return out
}()

// parseTypes returns a set of types; names that are none of an element type stand for others.
func parseTypes(words []string) (t TypeSet) {
	for _, w := range words {
		if bit, ok := dtypes[w]; ok {
			t |= bit
		} else {
			t |= others
		}
	}
	return t
}

// parser reads the registry's text: an operator's line with its version, then indented lines for
// its parts.
type parser struct {
	all       map[key][]*Schema
	schema    *Schema
	variables map[string]TypeSet // of the schema
}

// parse reads the whole text; an error names the line. Lines that begin with # are comments.
func parse(text string) (map[key][]*Schema, error) {
	p := &parser{all: map[key][]*Schema{}}
	line := 0
	for l := range strings.Lines(text) {
		line++
		words := strings.Fields(l)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		read := p.part
		if l[0] != ' ' {
			read = p.operator
		}
		if err := read(words); err != nil {
			return nil, fmt.Errorf("schemas.txt:%d: %w: %q", line, err, l)
		}
	}
	p.finish()
	return p.all, nil
}

// finish gives the parameters of the schema their types. Variables come behind the operands that
// name them, so types are set at the end of a schema.
func (p *parser) finish() {
	if p.schema == nil {
		return
	}
	for _, params := range [][]Param{p.schema.In, p.schema.Out} {
		for i := range params {
			t, ok := p.variables[params[i].Type]
			if !ok {
				t = parseTypes([]string{params[i].Type})
			}
			params[i].Types = t
		}
	}
}

// operator begins a schema. Its words are [DOMAIN.]NAME, the version, and a third where the
// operator is deprecated.
func (p *parser) operator(words []string) error {
	p.finish()
	if len(words) < 2 {
		return fmt.Errorf("an operator without a version")
	}
	since, err := strconv.Atoi(words[1])
	if err != nil {
		return fmt.Errorf("no version")
	}
	k := key{name: words[0]}
	if i := strings.LastIndexByte(k.name, '.'); i >= 0 {
		k = key{k.name[:i], k.name[i+1:]}
	}
	p.schema = &Schema{Domain: k.domain, Name: k.name, Since: since, Deprecated: len(words) > 2}
	p.variables = map[string]TypeSet{}
	if v := p.all[k]; len(v) > 0 && v[len(v)-1].Since >= since {
		return fmt.Errorf("the versions are not in order")
	}
	p.all[k] = append(p.all[k], p.schema)
	return nil
}

// part reads inputs, outputs, an attribute or a variable of the schema.
func (p *parser) part(words []string) error {
	if p.schema == nil {
		return fmt.Errorf("no operator")
	}
	switch w := words[0]; {
	case w == "in" || w == "out":
		var params []Param
		for _, word := range words[1:] {
			param, ok := parseParam(word)
			if !ok {
				return fmt.Errorf("a parameter that is not NAME:TYPE")
			}
			params = append(params, param)
		}
		if w == "in" {
			p.schema.In = params
		} else {
			p.schema.Out = params
		}
	case w == "attr":
		a, err := parseAttr(words[1:])
		if err != nil {
			return err
		}
		p.schema.Attrs = append(p.schema.Attrs, a)
	case strings.HasSuffix(w, ":"):
		p.variables[strings.TrimSuffix(w, ":")] = parseTypes(words[1:])
	default:
		return fmt.Errorf("not understood")
	}
	return nil
}

// parseParam reads NAME:TYPE. Behind the name stand *N for a variadic parameter of N or more, ? for
// an optional one and ~ for mixed types.
func parseParam(word string) (Param, bool) {
	name, typ, ok := strings.Cut(word, ":")
	if !ok || name == "" || typ == "" {
		return Param{}, false
	}
	p := Param{Type: typ}
	name, p.Mixed = strings.CutSuffix(name, "~")
	name, p.Optional = strings.CutSuffix(name, "?")
	if base, least, found := strings.Cut(name, "*"); found {
		n, err := strconv.Atoi(least)
		if err != nil {
			return Param{}, false
		}
		name, p.Variadic, p.Least = base, true, n
	}
	p.Name = name
	return p, true
}

// parseAttr reads NAME KIND, then ! for required or = and the default, then "of" and the words
// allowed.
func parseAttr(words []string) (Attribute, error) {
	if len(words) < 2 {
		return Attribute{}, fmt.Errorf("an attribute without a kind")
	}
	kind, ok := kinds[words[1]]
	if !ok {
		return Attribute{}, fmt.Errorf("an attribute of an unknown kind")
	}
	a := Attribute{Name: words[0], Kind: kind}
	if i := slices.Index(words, "of"); i > 0 {
		words, a.Words = words[:i], words[i+1:]
	}
	if len(words) == 2 {
		return a, nil
	}
	if words[2] == "!" {
		a.Required = true
		return a, nil
	}
	d := onnx.Attr{Name: a.Name, Kind: kind}
	var err error
	for _, w := range words[3:] {
		switch kind {
		case onnx.AttrInt:
			d.Int, err = strconv.ParseInt(w, 10, 64)
		case onnx.AttrFloat:
			d.Float, err = parseFloat(w)
		case onnx.AttrString:
			d.Str, err = strconv.Unquote(w)
		case onnx.AttrInts:
			var v int64
			v, err = strconv.ParseInt(w, 10, 64)
			d.Ints = append(d.Ints, v)
		case onnx.AttrFloats:
			var v float32
			v, err = parseFloat(w)
			d.Floats = append(d.Floats, v)
		case onnx.AttrStrings:
			w, err = strconv.Unquote(w)
			d.Strs = append(d.Strs, w)
		default:
			err = fmt.Errorf("a default of a kind that has none")
		}
		if err != nil {
			return a, err
		}
	}
	a.Default = &d
	return a, nil
}

func parseFloat(w string) (float32, error) {
	v, err := strconv.ParseFloat(w, 32)
	return float32(v), err
}
