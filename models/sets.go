package models

import (
	"encoding/json"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// SetOutput is the output of a classifier with prediction sets: set [n, C] bool, whether a class is
// in the set of an image. The most probable class always is.
const SetOutput = "set"

// LevelInput is the optional input of a classifier with prediction sets: level [1] float32, the
// probability with which a set holds the class.
const LevelInput = "level"

// SetTable holds the thresholds of prediction sets by level, in rows of ascending levels, [rows,
// Columns]: one column for all classes, or one for each. The threshold of a level is that of the
// least level in its column that is not below it.
type SetTable struct {
	Columns            int
	Levels, Thresholds []float32
}

// NoLevel and NoThreshold fill the columns that have fewer rows than others.
const (
	NoLevel     = float32(2)
	NoThreshold = float32(-1) // below every score
)

// At returns the thresholds of a level, one a column; NoThreshold where the table proves none.
func (t *SetTable) At(level float64) []float32 {
	out := make([]float32, t.Columns)
	for c := range out {
		out[c] = NoThreshold
		for i := c; i < len(t.Levels); i += t.Columns {
			if t.Levels[i] >= float32(level) {
				out[c] = t.Thresholds[i]
				break
			}
		}
	}
	return out
}

// OriginSets is the calibration of a classifier's prediction sets, part of its [Origin].
type OriginSets struct {
	// Level is the stated coverage, Score the conformity score (package conformal), and Thresholds
	// the scores from which on a class is in the set at this level: one for all classes, or one for
	// each, -1 for a class whose points are too few, which is in every set.
	Level      float64   `json:"level"`
	Score      string    `json:"score"`
	Thresholds []float32 `json:"thresholds"`
	// Table has the thresholds of all levels; it is in the graph.
	Table *SetTable `json:"-"`
	// ByClass says that Level holds for the images of each class; Proportions are the shares of
	// classes that it is for, where these were named.
	ByClass     bool      `json:"by_class,omitempty"`
	Proportions []float64 `json:"proportions,omitempty"`
	// Groups are the names of the groups of clients for each of which the level holds, Group the
	// group of each calibration image.
	Groups []string `json:"groups,omitempty"`
	Group  []int    `json:"group,omitempty"`
	// False are the numbers of clients, of each group, whose points may be false without that the
	// level falls. Client is then the client of each calibration image, a number that tells no
	// name, and LeftOut are the names of those whose points contradict the others' and count
	// nowhere.
	False   []int    `json:"false,omitempty"`
	Client  []int    `json:"client,omitempty"`
	LeftOut []string `json:"left_out,omitempty"`
	// Images is the number of calibration images, From the name of their source.
	Images int `json:"images"`
	// Clients is the number of clients that sent them; 0 where they are one owner's, who calibrated
	// the classifier itself.
	Clients int    `json:"clients,omitempty"`
	From    string `json:"from"`
	// Class are the calibration images' classes, in a file only where the level depends on them;
	// Scores are the scores of these, by their name.
	Class  []int                `json:"class,omitempty"`
	Scores map[string][]float32 `json:"scores"`
	// Top are the calibration images' highest probabilities, Right whether they name the image's
	// class.
	Top   []float32 `json:"top"`
	Right []bool    `json:"right"`
}

// threshold returns the thresholds of a level, [1, Columns].
func (t *SetTable) threshold(b *build.Builder, level build.Ref) build.Ref {
	rows := len(t.Levels) / t.Columns
	last := slices.Repeat([]float32{NoThreshold}, t.Columns) // no row reaches the level
	levels := b.Param("levels", onnx.NewTensor(t.Levels, rows, t.Columns))
	thresholds := b.Param("thresholds",
		onnx.NewTensor(slices.Concat(t.Thresholds, last), rows+1, t.Columns))
	// A level that is no number is reached by no row.
	below := b.Cast(b.Op("Not", []build.Ref{b.Op("GreaterOrEqual", []build.Ref{levels, level})}),
		onnx.Int64)
	return b.Op("GatherElements", []build.Ref{thresholds, b.ReduceSum(below, true, 0)},
		onnx.IntAttr("axis", 0))
}

// Bounds of the levels of prediction sets that are asked for.
const (
	MinLevel = 0.5
	MaxLevel = 0.999
)

// AtLevel returns a classifier whose prediction sets have another level, and its manifest.
func AtLevel(m *onnx.Model, f Manifest, level float64) (*onnx.Model, Manifest, error) {
	if !(level >= MinLevel && level <= MaxLevel) {
		return nil, f, fmt.Errorf("level is %v: allowed are %v to %v", level, MinLevel, MaxLevel)
	}
	o, err := ReadOrigin(f)
	if err != nil {
		return nil, f, err
	}
	if o.Sets == nil || !slices.ContainsFunc(m.Graph.Optional,
		func(v onnx.ValueInfo) bool { return v.Name == LevelInput }) {
		return nil, f, fmt.Errorf("level %v: the classifier has no prediction sets whose level "+
			"can be chosen: make it with fmp pool or fmp calibrate", level)
	}
	m = onnx.Clone(m)
	if err := m.Graph.SetDefault(LevelInput, onnx.Vector(float32(level))); err != nil {
		return nil, f, err
	}
	o.Sets.Level, o.Sets.Thresholds = level, nil
	text, err := json.Marshal(o)
	f.Config = string(text)
	return m, f, err
}

// WithSets returns a classifier with the output set, the optional input level, and the sets'
// calibration in its provenance. Where level is not fed it is that of sets; beyond the table's
// highest level sets hold all classes. adaptive says that the score of a class is 1 less the sum of
// the probabilities that are at least its own; otherwise it is its probability. Where the
// classifier has a [Scaling], scores are of its probabilities before it, as the images that chose
// it may be those of the sets.
func WithSets(classifier *onnx.Model, sets OriginSets, adaptive bool) (m *onnx.Model, err error) {
	defer wrapped(&err, "adding prediction sets")
	f, err := ReadManifest(classifier)
	if err != nil {
		return nil, err
	}
	probabilities, ok := classifier.Graph.Output("probabilities")
	if !ok || f.Kind != KindClassifier {
		return nil, fmt.Errorf("the model is %q with outputs %v: want a classifier", f.Kind,
			classifier.Graph.Outputs)
	}
	origin, err := ReadOrigin(f)
	if err != nil {
		return nil, err
	}
	t := sets.Table
	if (t.Columns != 1 && t.Columns != f.C) || len(t.Levels) == 0 || len(t.Levels)%t.Columns != 0 ||
		len(t.Thresholds) != len(t.Levels) {
		return nil, fmt.Errorf("a table of %d levels and %d thresholds in %d columns for %d "+
			"classes", len(t.Levels), len(t.Thresholds), t.Columns, f.C)
	}
	b := build.New("sets")
	stated := b.Input("stated", onnx.Float32, "n", f.C)
	link, p := map[string]string{"stated": "probabilities"}, stated
	uncalibrated, scaled := classifier.Graph.Output(UncalibratedOutput)
	if scaled {
		p = b.Input("scored", onnx.Float32, "n", f.C)
		link["scored"] = UncalibratedOutput
	}
	score := p
	if adaptive {
		sorted := b.OpN("TopK", []build.Ref{p, b.Axes(f.C)}, 2, onnx.IntAttr("axis", 1))
		sum := b.Op("CumSum", []build.Ref{sorted[0], b.Const(onnx.Scalar(int64(1)))})
		back := b.Op("ScatterElements", []build.Ref{p, sorted[1], sum}, onnx.IntAttr("axis", 1))
		score = b.Sub(b.F32(1), back)
	}
	likely := b.Op("GreaterOrEqual",
		[]build.Ref{score, t.threshold(b, b.Optional(LevelInput,
			onnx.Vector(float32(sets.Level))))})
	top := b.Op("Equal", []build.Ref{stated, b.ReduceMax(stated, true, 1)})
	b.Output(SetOutput, b.Op("Or", []build.Ref{likely, top}))
	after, err := b.Model()
	if err != nil {
		return nil, err
	}
	before := onnx.Clone(classifier)
	dropOutputs(before.Graph, SetOutput)
	pass.RemoveUnused(before.Graph) // what earlier sets wanted
	if m, err = pass.Compose(before, after, link); err != nil {
		return nil, err
	}
	// The probabilities are linked, and an output still.
	m.Graph.Outputs = slices.Insert(m.Graph.Outputs, 0, probabilities)
	if scaled {
		m.Graph.Outputs = slices.Insert(m.Graph.Outputs, len(m.Graph.Outputs)-1, uncalibrated)
	}
	m.Graph.Doc, m.Doc = classifier.Graph.Doc, classifier.Doc
	succeed(m, classifier)
	m.Graph.Outputs[len(m.Graph.Outputs)-1].Doc =
		"Whether a class is in the prediction set of an image, which holds the true class with a " +
			"probability of level or more for images like the calibration images."
	m.Graph.Optional[len(m.Graph.Optional)-1].Doc = fmt.Sprintf(
		"Probability, 0.5 to 0.999, with which a set holds the true class; "+
			"%v where it is left out.", sets.Level)
	if !sets.ByClass && sets.Proportions == nil {
		sets.Class = nil // its reader needs none
	}
	origin.Sets = &sets
	return m, f.writeOrigin(m, origin)
}
