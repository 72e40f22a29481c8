package ort

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	ortgo "github.com/yalue/onnxruntime_go"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

// session is a model loaded by the ONNX Runtime. Run may be called from several goroutines at once.
type session struct {
	name    string
	inputs  []onnx.ValueInfo // the model's own
	outputs []output
	feeds   []string // of the adapted model
	fetched int      // number of the adapted model's outputs
	dummy   bool     // the one feed is the dummy
	pool    pool

	mu   sync.RWMutex // held for reading by runs, for writing by Close
	sess *ortgo.DynamicAdvancedSession
}

var _ engine.Session = (*session)(nil)

// load adapts the model, writes it as bytes and has the runtime read them; large weights stay in
// their files. m is not changed. Options and settings are freed once the runtime has read them.
func (e *Engine) load(m *onnx.Model) (*session, error) {
	m, lazy, err := prepared(m)
	if err != nil {
		return nil, err
	}
	whole, err := describe(m)
	if err != nil {
		return nil, err
	}
	a, err := adapt(whole)
	if err != nil {
		return nil, err
	}
	data, folder, err := serde.Refer(a.model)
	if err != nil {
		return nil, err
	}
	so, err := e.sessionOptions(lazy)
	if err != nil {
		return nil, err
	}
	defer so.Destroy()
	for key, value := range configEntries(a.model.Graph, folder) {
		if err := so.AddSessionConfigEntry(key, value); err != nil {
			return nil, plain(err)
		}
	}
	sess, err := ortgo.NewDynamicAdvancedSessionWithONNXData(data, a.inputs, a.outputs, so)
	if err != nil {
		return nil, plain(err)
	}
	s := &session{
		name: m.Graph.Name, inputs: m.Graph.Inputs, outputs: a.plan, feeds: a.inputs,
		fetched: len(a.outputs),
		dummy:   len(m.Graph.Inputs) == 0, sess: sess, pool: pool{kept: map[string][]*value{}},
	}
	// Closes a session that nobody closed, before the collector meets its pinned tensors: that
	// would be a panic.
	runtime.SetFinalizer(s, (*session).Close)
	return s, nil
}

// prepared writes a model in operators that the runtime has. lazy says that its constants are left
// to the run.
func prepared(m *onnx.Model) (_ *onnx.Model, lazy bool, err error) {
	if len(m.Functions) > 0 {
		// The runtime (1.27) aborts the process on a call that leaves out a function's last output,
		// which is allowed.
		inlined := *m
		if err := pass.Inline(&inlined); err != nil {
			return nil, false, err
		}
		m = &inlined
	}
	if newer, err := pass.FromSix(m); err == nil { // others the runtime refuses
		m = newer
	}
	if err := op.Ranges(m.Graph, m.Opsets); err != nil {
		return nil, false, err
	}
	// The runtime works out all constants when it loads a model. Where that is more than the model
	// may ask for, it is left to the run, which can be stopped.
	heavy, err := shape.TooHeavy(m)
	if err != nil && m.Opset() >= onnx.MinOpset { // older broadcasts contradict the rules of today
		return nil, false, err
	}
	if lazy = len(heavy) > 0; lazy {
		m = onnx.Clone(m)
		if err := shape.Infer(m); err != nil {
			return nil, false, err
		}
		if !described(m.Graph.Outputs) {
			return nil, false,
				fmt.Errorf("an output's type is not known, and the runtime would have to load the model "+
					"to tell: %v", heavy[0])
		}
	}
	m, err = lower(m)
	return m, lazy, err
}

// configEntries returns the session's settings by the runtime's names. Weights that are not in the
// model are files of folder.
func configEntries(g *onnx.Graph, folder string) map[string]string {
	entries := map[string]string{}
	if folder != "" {
		entries["session.model_external_initializers_file_folder_path"] = folder
	}
	var without []string
	if pools(g) {
		// Fused into MaxPool, padding by 0 becomes padding by the lowest number; into AveragePool
		// of an older set, ceil_mode counts positions beyond it.
		without = append(without, "Pad_Fusion")
	}
	if overcounts(g) { // pools over blocks of channels count these in every set
		without = append(without, "NchwcTransformer")
	}
	entries["optimization.disable_specified_optimizers"] = strings.Join(without, ";")
	return entries
}

// pools reports whether a graph, or one within it, has a pool that a Pad may be fused into.
func pools(g *onnx.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool {
		return n.Op == "MaxPool" || n.Op == "AveragePool" || slices.ContainsFunc(n.Subgraphs(), pools)
	})
}

// describe is m with the type and rank of its outputs, as far as they can be known before it runs.
// Inference comes first: to ask the runtime means to load the whole model a second time.
func describe(m *onnx.Model) (*onnx.Model, error) {
	if described(m.Graph.Outputs) {
		return m, nil
	}
	g := *m.Graph
	g.Outputs = append([]onnx.ValueInfo{}, m.Graph.Outputs...)
	c := *m
	c.Graph = &g
	if err := shape.Infer(&c); err == nil && described(g.Outputs) {
		return &c, nil
	}
	data, err := serde.Marshal(m)
	if err != nil {
		return nil, err
	}
	_, outs, err := ortgo.GetInputOutputInfoWithONNXData(data)
	if err != nil {
		return nil, plain(err)
	}
	for i := range g.Outputs {
		v := &g.Outputs[i]
		if v.Shape != nil && v.DType != onnx.Undefined {
			// A declaration that is whole goes before the runtime's.
			continue
		}
		for _, o := range outs {
			if o.Name != v.Name || o.OrtValueType != ortgo.ONNXTypeTensor {
				continue
			}
			v.DType = fromRuntime(o.DataType)
			// none: a scalar, or a rank that is not known
			if v.Shape == nil && len(o.Dimensions) > 0 {
				for _, d := range o.Dimensions {
					if d < 0 {
						v.Shape = append(v.Shape, onnx.Symbolic(""))
					} else {
						v.Shape = append(v.Shape, onnx.Known(int(d)))
					}
				}
			}
		}
	}
	return &c, nil
}

// described reports whether the type and rank of every value are known.
func described(vs []onnx.ValueInfo) bool {
	return !slices.ContainsFunc(vs,
		func(v onnx.ValueInfo) bool { return v.DType == onnx.Undefined || v.Shape == nil })
}

// Inputs returns the model's inputs. The list is the session's own, and callers read it only.
func (s *session) Inputs() []onnx.ValueInfo { return s.inputs }

// Outputs returns the model's outputs. The list is made anew by each call.
func (s *session) Outputs() []onnx.ValueInfo {
	out := make([]onnx.ValueInfo, len(s.outputs))
	for i, o := range s.outputs {
		out[i] = o.info
	}
	return out
}

// Close frees the session, after the runs under way have ended. It may be called twice; a run
// afterwards is an error.
func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sess == nil {
		return nil
	}
	s.pool.close()
	err := s.sess.Destroy()
	s.sess = nil
	if err != nil {
		return fmt.Errorf("ort: model %q: closing: %w", s.name, err)
	}
	return nil
}

// Run is engine.Session's. Goroutines may call it at once, with fetch tensors of their own. The
// memory of the last two tensors fed and fetched under each name is kept alive until Close.
func (s *session) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.sess == nil {
		return fmt.Errorf("ort: model %q: the session is closed", s.name)
	}
	if err := s.run(ctx, feeds, fetch); err != nil {
		return fmt.Errorf("ort: model %q: %w", s.name, err)
	}
	return nil
}

// run checks the tensors, hands them over, computes and fetches. On an error of the runtime tensors
// of fetch may be written in part.
func (s *session) run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	if err := engine.Stopped(ctx); err != nil { // a short run would end before it is terminated
		return err
	}
	if err := engine.Check(s, feeds, fetch); err != nil {
		return err
	}
	c := &call{session: s, in: make([]ortgo.Value, len(s.feeds)),
		out: make([]ortgo.Value, s.fetched), given: make([]bool, s.fetched)}
	defer c.release()
	if err := c.feed(feeds); err != nil {
		return err
	}
	if err := c.give(fetch); err != nil {
		return err
	}
	got, err := c.evaluate(ctx)
	if err != nil {
		if stopped := engine.Stopped(ctx); stopped != nil {
			return stopped
		}
		return plain(err)
	}
	return c.fetch(fetch, got)
}

// call is one run of a session.
type call struct {
	*session
	in, out []ortgo.Value
	given   []bool // outputs in Go memory that the caller gave
	leases  []lease
}

// lease is a value taken from the session's pool.
type lease struct {
	name string
	v    *value
}

// release gives the values back to the session's pool. It comes after fetch, as pinned memory may
// not be let go before the runtime is done with it.
func (c *call) release() {
	for _, l := range c.leases {
		c.pool.put(l.name, l.v)
	}
}

// lease hands a tensor to the runtime, by the value of an earlier run where it has the same memory.
func (c *call) lease(name string, t *onnx.Tensor) (ortgo.Value, error) {
	v, err := c.pool.get(name, t)
	if err != nil {
		return nil, err
	}
	c.leases = append(c.leases, lease{name, v})
	return v.ort, nil
}

// feed hands the inputs to the runtime. A scalar that onnxruntime_go cannot hand over goes as a row
// of one, in the same memory.
func (c *call) feed(feeds map[string]*onnx.Tensor) (err error) {
	for i, name := range c.feeds {
		t := onnx.ZerosF32(1)
		if !c.dummy {
			t = feeds[c.inputs[i].Name]
			if noScalar(c.inputs[i]) {
				t = &onnx.Tensor{DType: t.DType, Shape: []int{1}, Data: t.Data}
			}
		}
		if c.in[i], err = c.lease(name, t); err != nil {
			return fmt.Errorf("input %q: %w", name, err)
		}
	}
	return nil
}

// give hands over the memory of the outputs that the runtime can write to. Names of the pool begin
// with "fetch ", so that an input and an output of one name stay apart.
func (c *call) give(fetch map[string]*onnx.Tensor) (err error) {
	for _, o := range c.outputs {
		t := fetch[o.info.Name]
		if t == nil || o.flat || t.DType == onnx.String {
			continue
		}
		if c.out[o.at], err = c.lease("fetch "+o.info.Name, t); err != nil {
			return fmt.Errorf("output %q: %w", o.info.Name, err)
		}
		c.given[o.at] = true
	}
	return nil
}

// evaluate runs the model and returns the outputs that the runtime allocated.
func (c *call) evaluate(ctx context.Context) ([]*onnx.Tensor, error) {
	err := c.session.evaluate(ctx, c.in, c.out)
	got := make([]*onnx.Tensor, len(c.out))
	for i, v := range c.out {
		// Beside an error onnxruntime_go may leave a typed nil.
		if c.given[i] || v == nil || reflect.ValueOf(v).IsNil() {
			continue
		}
		t, uerr := unwrap(v)
		if uerr != nil && err == nil {
			err = uerr
		}
		got[i] = t
	}
	return got, err
}

// fetch puts the outputs that the runtime allocated into the caller's tensors, or in their place
// where there are none.
func (c *call) fetch(fetch map[string]*onnx.Tensor, got []*onnx.Tensor) (err error) {
	for _, o := range c.outputs {
		t, wanted := fetch[o.info.Name]
		if !wanted || c.given[o.at] {
			continue
		}
		r := got[o.at]
		if o.flat {
			if r, err = o.assemble(got); err != nil {
				return fmt.Errorf("output %q: %w", o.info.Name, err)
			}
		}
		if t == nil {
			fetch[o.info.Name] = r
			continue
		}
		if t.DType != r.DType || !slices.Equal(t.Shape, r.Shape) {
			return fmt.Errorf(
				"output %q is %v and the tensor given for it is %v; give one of that type and "+
					"shape, or nil",
				o.info.Name, r, t)
		}
		if err := copyInto(t, r); err != nil {
			return fmt.Errorf("output %q: %w", o.info.Name, err)
		}
	}
	return nil
}

// evaluate is the runtime's part of a run, which it ends early where ctx is done. A context that
// never ends needs no options of the run.
func (s *session) evaluate(ctx context.Context, in, out []ortgo.Value) error {
	if ctx.Done() == nil {
		return s.sess.Run(in, out)
	}
	opts, err := ortgo.NewRunOptions()
	if err != nil {
		return err
	}
	defer opts.Destroy()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		opts.Terminate()
	})
	err = s.sess.RunWithOptions(in, out, opts)
	if !stop() {
		<-told // it reads the options
	}
	return err
}

// assemble puts elements and shape together again.
func (o output) assemble(got []*onnx.Tensor) (*onnx.Tensor, error) {
	shape, err := got[o.shape].Ints()
	if err != nil {
		return nil, err
	}
	t := got[o.at]
	if o.cast != onnx.Undefined {
		t = carried(t, o.cast)
	}
	return t.Reshape(shape...)
}

// plainError is an error of the ONNX Runtime in one line, without onnxruntime_go's words about
// which call failed and without the place in the ONNX Runtime's own source.
type plainError struct{ err error }

// place is a line of the ONNX Runtime's source and the C++ function that stands there.
var place = regexp.MustCompile(
	`\S*/onnxruntime/(core|contrib_ops)/\S+:\d+ [^()]*\([^)]*\)(?: const)?(?: \[[^\]]*\])? ?`)

func (e *plainError) Error() string {
	s := e.err.Error()
	// These are onnxruntime_go's words, of which one error may have several.
	for _, p := range []string{"Error running network: ", "Error creating C session: ",
		"Error loading temporary session: ",
		"Error creating temporary session: "} {
		s = strings.TrimPrefix(s, p)
	}
	return "ONNX Runtime: " + strings.Join(strings.Fields(place.ReplaceAllString(s, "")), " ")
}
func (e *plainError) Unwrap() error { return e.err }

// plain is an error of the runtime, shortened.
func plain(err error) error { return &plainError{err} }
