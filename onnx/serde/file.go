// Package serde reads and writes model files: ONNX's protobuf messages and the files beside them
// that hold large tensors. Files are not trusted: the memory that they take is bounded by their
// size.
package serde

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/message"
	"fmp/onnx/onnxpb"
	"fmp/onnx/regularfile"
)

// MaxFileBytes bounds a model file: 2 GiB, protobuf's own limit.
const MaxFileBytes = 2 << 30

// Load reads a model file, and the files beside it that hold its larger tensors where it says so
// (external data; they must lie in the model's folder or below). Such a file of 16 MiB and more is
// mapped for as long as the process lasts: replace it by renaming another, and never write to it.
// It neither checks the model nor infers shapes.
func Load(path string) (*onnx.Model, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return LoadOwn(path, data, nil, io.Discard)
}

// ReadFile reads a model file. It reads regular files alone, of at most [MaxFileBytes].
func ReadFile(path string) ([]byte, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, fmt.Errorf("loading model %s: it is a folder; give the .onnx file (a TensorFlow "+
			"SavedModel is exported with tf2onnx)", path)
	}
	data, err := regularfile.ReadFile(path, MaxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("loading model: %w", err)
	}
	return data, nil
}

// LoadOwn is [Load] of a file that was read, whose bytes the model takes over: larger tensors stay
// where they lie in data, which is moved for it and no longer the file. Where whole, which may be
// nil, says so of the model's metadata, the model must be one closed file ([Closed]): no other is
// looked at. The bytes of tensors in files beside it, as many as their shapes say, are written to
// beside. They come in the order of these files' names, of offsets and of lengths. Errors of beside
// are not read.
func LoadOwn(path string, data []byte, whole func(metadata map[string]string) bool,
	beside io.Writer) (*onnx.Model, error) {
	m, err := load(path, data, whole, beside)
	if err != nil {
		return nil, fmt.Errorf("loading model %s: %w", path, err)
	}
	return m, nil
}

// load looks at the metadata before the message is decoded, as a closed file has tighter bounds.
func load(path string, data []byte, whole func(metadata map[string]string) bool,
	beside io.Writer) (*onnx.Model, error) {
	if whole != nil && (whole(nil) || saysWhole(data, whole)) {
		return closed(data, decodeOwn)
	}
	p, err := decodeOwn(data, maxParts)
	if err != nil {
		return nil, err
	}
	places, err := readExternal(p, filepath.Dir(path), beside)
	if err != nil {
		return nil, err
	}
	m, err := modelFromProto(p)
	if err != nil {
		return nil, err
	}
	for name, e := range places {
		m.Graph.Initializers[name].External = e
	}
	return m, nil
}

// saysWhole reports whether a model's metadata have an entry that makes it one closed file. A key
// may be given twice. A damaged entry counts as one that says so, since another reader might make
// something of it.
func saysWhole(data []byte, whole func(metadata map[string]string) bool) bool {
	// metadata is the number of the field metadata_props in ModelProto (onnx.proto).
	const metadata = 14
	says := false
	eachField(data, func(num protowire.Number, kind protowire.Type, _, value []byte) {
		if num == metadata && kind == protowire.BytesType {
			var kv onnxpb.StringStringEntryProto
			err := message.Within(value, &kv, 2, 16)
			says = says || err != nil || whole(map[string]string{kv.Key: kv.Value})
		}
	})
	return says
}

// Save writes a model file, whole or not at all. All of the model is encoded in memory before the
// file is written.
func Save(path string, m *onnx.Model) error {
	data, err := Marshal(m)
	if err != nil {
		return fmt.Errorf("saving model %s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, data)
}

// Unmarshal decodes a serialised ModelProto. Tensors in other files are refused; [Load] reads them.
// The memory allocated is bounded by the data: at most about four hundred bytes for each of data's,
// counting memory given up again on the way (empty messages of two bytes are the worst), and for a
// model of weights about three times its size.
func Unmarshal(data []byte) (*onnx.Model, error) {
	p, err := decode(data, maxParts)
	if err != nil {
		return nil, err
	}
	return modelFromProto(p)
}

// Parts of a model, of which the largest in use have some millions, and of one closed file.
const (
	maxParts       = 1 << 24
	maxClosedParts = 1 << 20
)

// decodeOwn is decode of data that the message takes over ([takeApart]).
func decodeOwn(data []byte, parts int) (*onnxpb.ModelProto, error) {
	rest, raw := takeApart(data, apartFrom)
	p, err := decode(rest, parts)
	if err != nil {
		return nil, err
	}
	for i, bytes := range raw {
		p.Graph.Initializer[i].RawData = bytes
	}
	return p, nil
}

// decode names the format of another file in place of the decoder's error, which would say little.
// parts bounds messages, texts and byte strings, as message.Within counts them.
func decode(data []byte, parts int) (*onnxpb.ModelProto, error) {
	var p onnxpb.ModelProto
	err := message.Within(data, &p, maxMessages, parts)
	if err == nil && p.Graph != nil {
		return &p, nil
	}
	if foreign := foreignFormat(data); foreign != "" {
		return nil, fmt.Errorf("not an ONNX model: %s", foreign)
	}
	if err != nil {
		return nil, fmt.Errorf("not an ONNX model, or a damaged one: %w", err)
	}
	return nil, fmt.Errorf("not an ONNX model: it holds no graph")
}

// allOptional is the metadata key of a file of which every initializer is an optional input.
const allOptional, every = "fmp.optional_inputs", "all"

// modelFromProto returns a model that shares lists and raw bytes with the message. Of a metadata
// key or an operator set that is given twice the later one counts.
func modelFromProto(p *onnxpb.ModelProto) (*onnx.Model, error) {
	m := &onnx.Model{
		// From IR 4 on initializers are constants that the inputs do not list, which is how graphs
		// are held here.
		IR: max(p.IrVersion, 4), Opsets: map[string]int64{}, Producer: p.ProducerName,
		ProducerVersion: p.ProducerVersion,
		Domain:          p.Domain, Version: p.ModelVersion, Doc: p.DocString,
		Metadata: map[string]string{},
	}
	for _, o := range p.OpsetImport {
		m.Opsets[domain(o.Domain)] = o.Version
	}
	for _, kv := range p.MetadataProps {
		m.Metadata[kv.Key] = kv.Value
	}
	var err error
	if m.Graph, err = graphFromProto(p.Graph, 0); err != nil {
		return nil, err
	}
	// Up to IR 3, and by exporters that keep its habit, all initializers are listed among the
	// inputs: they are constants all the same, but where the file says that they are none.
	optional := m.Metadata[allOptional] == every
	if optional {
		delete(m.Metadata, allOptional)
	}
	if p.IrVersion < 4 || len(m.Graph.Optional) == len(m.Graph.Initializers) && !optional {
		m.Graph.Optional = nil
	}
	for _, fp := range p.Functions {
		f := &onnx.Function{Domain: domain(fp.Domain), Name: fp.Name, Inputs: fp.Input,
			Outputs: fp.Output, Attributes: fp.Attribute,
			Opsets: map[string]int64{}}
		for _, o := range fp.OpsetImport {
			f.Opsets[domain(o.Domain)] = o.Version
		}
		f.Defaults, err = each(fp.AttributeProto,
			func(p *onnxpb.AttributeProto) (onnx.Attr, error) { return attrFromProto(p, 0) })
		if err == nil {
			f.Nodes, err = each(fp.Node,
				func(p *onnxpb.NodeProto) (*onnx.Node, error) { return nodeFromProto(p, 0) })
		}
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", fp.Name, err)
		}
		m.Functions = append(m.Functions, f)
	}
	return m, nil
}

// domain is the standard domain's empty name for its long one.
func domain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

// Protobuf messages nested deeper than this are refused: a subgraph takes three, a type a few more.
const maxMessages = 4*onnx.MaxDepth + 32

// graphFromProto gives optional inputs to the main graph alone, at depth 0. An initializer given
// twice is an error, as a map would hold either of both unseen.
func graphFromProto(p *onnxpb.GraphProto, depth int) (*onnx.Graph, error) {
	if depth > onnx.MaxDepth {
		return nil, fmt.Errorf("subgraphs are nested more than %d deep", onnx.MaxDepth)
	}
	g := &onnx.Graph{Name: p.Name, Doc: p.DocString,
		Initializers: make(map[string]*onnx.Tensor, len(p.Initializer))}
	if len(p.SparseInitializer) > 0 {
		return nil, onnx.Unknownf(
			"graph %q holds sparse initializers, which are not supported; export it with dense weights",
			p.Name)
	}
	for _, tp := range p.Initializer {
		if _, dup := g.Initializers[tp.Name]; dup {
			return nil, fmt.Errorf("graph %q gives the initializer %q twice", p.Name, tp.Name)
		}
		t, err := TensorFromProto(tp)
		if err != nil {
			return nil, fmt.Errorf("graph %q: %w", p.Name, err)
		}
		g.Initializers[tp.Name] = t
	}
	// An initializer that stands twice among the inputs is optional once.
	listed := map[string]bool{}
	for _, vp := range p.Input {
		if t, ok := g.Initializers[vp.Name]; ok {
			if depth == 0 && !listed[vp.Name] {
				listed[vp.Name] = true
				g.AddOptional(vp.Name, t)
				o := &g.Optional[len(g.Optional)-1]
				// Free axes stay free: adapters give tensors of other ranks than the value that
				// stands for none.
				v, err := valueFromProto(vp)
				if err == nil && v.DType == o.DType && v.Shape != nil &&
					onnx.Conflicts(*o, v) == nil {
					o.Shape = v.Shape
				}
				o.Doc = vp.DocString
			}
			continue
		}
		v, err := valueFromProto(vp)
		if err != nil {
			return nil, fmt.Errorf("graph %q: input %w", p.Name, err)
		}
		g.Inputs = append(g.Inputs, v)
	}
	for _, vp := range p.Output {
		v, err := valueFromProto(vp)
		if err != nil {
			return nil, fmt.Errorf("graph %q: output %w%s", p.Name, err, zipped(p, vp.Name))
		}
		g.Outputs = append(g.Outputs, v)
	}
	for _, vp := range p.ValueInfo {
		// A file's type of an intermediate value is a hint; one of a kind we do not hold is
		// dropped.
		if v, err := valueFromProto(vp); err == nil {
			g.Values = append(g.Values, v)
		}
	}
	for i, np := range p.Node {
		n, err := nodeFromProto(np, depth)
		if err != nil {
			return nil, fmt.Errorf("graph %q: node %d: %w", p.Name, i, err)
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g, nil
}

// zipped returns the remedy for an output of ZipMap, the last node of skl2onnx's classifiers; empty
// for other outputs.
func zipped(p *onnxpb.GraphProto, output string) string {
	for _, n := range p.Node {
		if n.OpType == "ZipMap" && len(n.Input) == 1 && slices.Contains(n.Output, output) {
			return fmt.Sprintf(`; ZipMap makes it of the tensor %q: export without ZipMap `+
				`(skl2onnx: options={"zipmap": False}), or make that tensor the output`, n.Input[0])
		}
	}
	return ""
}

// valueFromProto takes a size beyond onnx.MaxElements for unknown, as it does -1.
func valueFromProto(p *onnxpb.ValueInfoProto) (onnx.ValueInfo, error) {
	v := onnx.ValueInfo{Name: p.Name, Doc: p.DocString}
	tt := p.GetType().GetTensorType()
	if tt == nil {
		if isOther(p.Type) {
			return v, onnx.Unknownf("%q is not a tensor (a sequence, map, optional or sparse tensor), "+
				"which is not supported", p.Name)
		}
		return v, nil
	}
	v.DType = onnx.DType(tt.ElemType)
	if tt.Shape != nil {
		v.Shape = []onnx.Dim{}
		for _, d := range tt.Shape.Dim {
			dim := onnx.Symbolic(d.GetDimParam())
			// Some exporters write -1 for "any".
			if n := d.DimValue; n != nil && *n >= 0 && *n <= onnx.MaxElements {
				dim = onnx.Known(int(*n))
			}
			v.Shape = append(v.Shape, dim)
		}
	}
	return v, nil
}

// isOther reports whether a type that is not a tensor's names another kind of value.
func isOther(p *onnxpb.TypeProto) (other bool) {
	// TypeProto's denotation is a hint for readers. Other kinds of value are fields that onnxpb
	// leaves out, and so are unknown ones.
	const denotation = 6
	unknown := p.ProtoReflect().GetUnknown()
	eachField(unknown, func(num protowire.Number, _ protowire.Type, _, _ []byte) {
		other = other || num != denotation
	})
	return other
}

// nodeFromProto shares the lists of names with the message. Overloads of functions came with IR 10.
func nodeFromProto(p *onnxpb.NodeProto, depth int) (*onnx.Node, error) {
	n := &onnx.Node{Name: p.Name, Op: p.OpType, Domain: domain(p.Domain), Inputs: p.Input,
		Outputs: p.Output}
	if p.Overload != "" {
		return nil, onnx.Unknownf("%s %q names the overload %q of a function, which is not supported",
			p.OpType, p.Name, p.Overload)
	}
	for _, ap := range p.Attribute {
		a, err := attrFromProto(ap, depth)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", p.OpType, p.Name, err)
		}
		n.Attrs = append(n.Attrs, a)
	}
	return n, nil
}

// kindOf returns the kind of an attribute; IR 1 left it out, and the field that is set tells it.
func kindOf(p *onnxpb.AttributeProto) onnx.AttrKind {
	switch {
	case p.Type != 0:
	case p.F != nil:
		return onnx.AttrFloat
	case p.I != nil:
		return onnx.AttrInt
	case p.S != nil:
		return onnx.AttrString
	case p.T != nil:
		return onnx.AttrTensor
	case len(p.Floats) > 0:
		return onnx.AttrFloats
	case len(p.Ints) > 0:
		return onnx.AttrInts
	case len(p.Strings) > 0:
		return onnx.AttrStrings
	}
	return onnx.AttrKind(p.Type)
}

// each converts a list up to its first error.
func each[P, T any](list []P, convert func(P) (T, error)) ([]T, error) {
	var out []T
	for _, p := range list {
		v, err := convert(p)
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

// attrFromProto takes a reference within a function, which may have a kind and no value.
func attrFromProto(p *onnxpb.AttributeProto, depth int) (onnx.Attr, error) {
	a := onnx.Attr{Name: p.Name, Kind: kindOf(p), Ref: p.RefAttrName}
	graph := func(g *onnxpb.GraphProto) (*onnx.Graph, error) { return graphFromProto(g, depth+1) }
	var err error
	switch a.Kind {
	case onnx.AttrFloat:
		a.Float = p.GetF()
	case onnx.AttrInt:
		a.Int = p.GetI()
	case onnx.AttrString:
		a.Str = string(p.S)
	case onnx.AttrFloats:
		a.Floats = p.Floats
	case onnx.AttrInts:
		a.Ints = p.Ints
	case onnx.AttrStrings:
		for _, s := range p.Strings {
			a.Strs = append(a.Strs, string(s))
		}
	case onnx.AttrTensor:
		if p.T != nil || a.Ref == "" {
			a.Tensor, err = TensorFromProto(p.T)
		}
	case onnx.AttrTensors:
		a.Tensors, err = each(p.Tensors, TensorFromProto)
	case onnx.AttrGraph:
		if p.G == nil {
			err = fmt.Errorf("is a graph and holds none")
		} else {
			a.Graph, err = graph(p.G)
		}
	case onnx.AttrGraphs:
		a.Graphs, err = each(p.Graphs, graph)
	default:
		if a.Ref == "" {
			err = onnx.Unknownf("is of kind %d, a sparse tensor or a type, which is not supported", p.Type)
		}
	}
	if err != nil {
		return a, fmt.Errorf("attribute %q: %w", p.Name, err)
	}
	return a, nil
}

// Marshal encodes a model as a serialised ModelProto. The same model gives the same bytes. Maps are
// written in the order of their names.
func Marshal(m *onnx.Model) ([]byte, error) {
	p, err := modelToProto(m)
	if err != nil {
		return nil, err
	}
	return encode(p)
}

// referAt is the size from which on [Refer] leaves a tensor where it lies.
const referAt = 1 << 16

// Refer encodes a model like [Marshal], but leaves its large initializers in the files that they
// lie in, which are named relative to the folder that is returned; that is "" where all of the
// model is encoded. Tensors of a second folder are encoded, since a model names files below one
// folder. m is not changed. The files must stay as they are for as long as the result is read.
func Refer(m *onnx.Model) (data []byte, folder string, err error) {
	if m == nil || m.Graph == nil {
		return nil, "", errNoGraph
	}
	// Model and graph are copied with all but the map shared, from which tensors are taken.
	c, g := *m, *m.Graph
	c.Graph, g.Initializers = &g, maps.Clone(m.Graph.Initializers)
	var apart []*onnxpb.TensorProto
	for _, name := range m.Graph.InitializerNames() {
		t := g.Initializers[name]
		e, n := t.External, t.DType.RawBytes(t.Len())
		if e == nil || n < referAt || folder != "" && folder != e.Folder {
			continue
		}
		folder = e.Folder
		delete(g.Initializers, name)
		p := header(name, t)
		p.DataLocation = dataElsewhere
		for _, kv := range [][2]string{{"location", e.Location}, {"offset", strconv.FormatInt(e.Offset, 10)},
			{"length", strconv.FormatInt(n, 10)}} {
			p.ExternalData = append(p.ExternalData, &onnxpb.StringStringEntryProto{Key: kv[0],
				Value: kv[1]})
		}
		apart = append(apart, p)
	}
	p, err := modelToProto(&c)
	if err != nil {
		return nil, "", err
	}
	p.Graph.Initializer = append(p.Graph.Initializer, apart...)
	data, err = encode(p)
	return data, folder, err
}

// encode writes fields in the order of their numbers, so that equal messages give equal bytes.
func encode(p *onnxpb.ModelProto) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding model: %w", err)
	}
	return data, nil
}

var errNoGraph = fmt.Errorf("there is no graph")

// modelToProto returns a message that shares the numbers of the model's tensors.
func modelToProto(m *onnx.Model) (*onnxpb.ModelProto, error) {
	if m == nil || m.Graph == nil {
		return nil, errNoGraph
	}
	p := &onnxpb.ModelProto{
		IrVersion: m.IR, ProducerName: m.Producer, ProducerVersion: m.ProducerVersion, Domain: m.Domain,
		ModelVersion: m.Version, DocString: m.Doc, OpsetImport: opsetsToProto(m.Opsets),
	}
	n := len(m.Graph.Optional)
	// Where all initializers are optional the metadata say so, as the list alone would pass for the
	// habit of IR 3.
	optional := n > 0 && n == len(m.Graph.Initializers)
	for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
		if k == allOptional && optional {
			continue
		}
		p.MetadataProps = append(p.MetadataProps,
			&onnxpb.StringStringEntryProto{Key: k, Value: m.Metadata[k]})
	}
	if optional {
		p.MetadataProps = append(p.MetadataProps,
			&onnxpb.StringStringEntryProto{Key: allOptional, Value: every})
	}
	var err error
	if p.Graph, err = graphToProto(m.Graph); err != nil {
		return nil, err
	}
	for _, f := range m.Functions {
		fp := &onnxpb.FunctionProto{Domain: f.Domain, Name: f.Name, Input: f.Inputs,
			Output: f.Outputs, Attribute: f.Attributes,
			OpsetImport: opsetsToProto(f.Opsets)}
		if fp.AttributeProto, err = each(f.Defaults, attrToProto); err != nil {
			return nil, err
		}
		if fp.Node, err = each(f.Nodes, nodeToProto); err != nil {
			return nil, err
		}
		p.Functions = append(p.Functions, fp)
	}
	return p, nil
}

// opsetsToProto orders operator sets by domain, as a map has no order.
func opsetsToProto(opsets map[string]int64) []*onnxpb.OperatorSetIdProto {
	var out []*onnxpb.OperatorSetIdProto
	for _, d := range slices.Sorted(maps.Keys(opsets)) {
		out = append(out, &onnxpb.OperatorSetIdProto{Domain: d, Version: opsets[d]})
	}
	return out
}

// graphToProto lists optional inputs behind all others, and initializers by name.
func graphToProto(g *onnx.Graph) (*onnxpb.GraphProto, error) {
	p := &onnxpb.GraphProto{Name: g.Name, DocString: g.Doc}
	for _, name := range g.InitializerNames() {
		tp, err := sharedTensor(name, g.Initializers[name])
		if err != nil {
			return nil, err
		}
		p.Initializer = append(p.Initializer, tp)
	}
	for _, v := range slices.Concat(g.Inputs, g.Optional) {
		p.Input = append(p.Input, valueToProto(v))
	}
	for _, v := range g.Outputs {
		p.Output = append(p.Output, valueToProto(v))
	}
	for _, v := range g.Values {
		p.ValueInfo = append(p.ValueInfo, valueToProto(v))
	}
	var err error
	if p.Node, err = each(g.Nodes, nodeToProto); err != nil {
		return nil, err
	}
	return p, nil
}

// valueToProto writes a value of unknown type without a type, whatever its shape.
func valueToProto(v onnx.ValueInfo) *onnxpb.ValueInfoProto {
	p := &onnxpb.ValueInfoProto{Name: v.Name, DocString: v.Doc}
	if v.DType == onnx.Undefined {
		return p
	}
	t := &onnxpb.TypeProto_Tensor{ElemType: int32(v.DType)}
	// A nil shape, of unknown rank, is left out. An empty one is a scalar's and is written.
	if v.Shape != nil {
		t.Shape = &onnxpb.TensorShapeProto{}
		for _, d := range v.Shape {
			dp := &onnxpb.TensorShapeProto_Dimension{}
			// A size with neither number nor name is written empty, and so is open.
			switch {
			case d.IsKnown():
				dp.DimValue = proto.Int64(int64(d.Size))
			case d.Symbol != "":
				dp.DimParam = proto.String(d.Symbol)
			}
			t.Shape.Dim = append(t.Shape.Dim, dp)
		}
	}
	p.Type = &onnxpb.TypeProto{TensorType: t}
	return p
}

// nodeToProto shares the lists of names with the node.
func nodeToProto(n *onnx.Node) (*onnxpb.NodeProto, error) {
	p := &onnxpb.NodeProto{Name: n.Name, OpType: n.Op, Domain: n.Domain, Input: n.Inputs,
		Output: n.Outputs}
	var err error
	if p.Attribute, err = each(n.Attrs, attrToProto); err != nil {
		return nil, fmt.Errorf("%s %q: %w", n.Op, n.Name, err)
	}
	return p, nil
}

// attrToProto writes the names and the kind of a reference alone.
func attrToProto(a onnx.Attr) (*onnxpb.AttributeProto, error) {
	p := &onnxpb.AttributeProto{Name: a.Name, Type: int32(a.Kind),
		RefAttrName: a.Ref}
	if a.Ref != "" {
		return p, nil
	}
	var err error
	switch a.Kind {
	case onnx.AttrFloat:
		p.F = proto.Float32(a.Float)
	case onnx.AttrInt:
		p.I = proto.Int64(a.Int)
	case onnx.AttrString:
		p.S = []byte(a.Str)
	case onnx.AttrFloats:
		p.Floats = a.Floats
	case onnx.AttrInts:
		p.Ints = a.Ints
	case onnx.AttrStrings:
		for _, s := range a.Strs {
			p.Strings = append(p.Strings, []byte(s))
		}
	case onnx.AttrTensor:
		p.T, err = sharedTensor("", a.Tensor)
	case onnx.AttrTensors:
		p.Tensors, err = each(a.Tensors,
			func(t *onnx.Tensor) (*onnxpb.TensorProto, error) { return sharedTensor("", t) })
	case onnx.AttrGraph:
		p.G, err = graphToProto(a.Graph)
	case onnx.AttrGraphs:
		p.Graphs, err = each(a.Graphs, graphToProto)
	default:
		err = fmt.Errorf("kind %d cannot be written", a.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
	}
	return p, nil
}
