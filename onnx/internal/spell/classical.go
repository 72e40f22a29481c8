package spell

import (
	"cmp"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// classical is the domain of linear models, of trees, and of the steps before and behind them, as
// exporters of scikit-learn and of boosted trees write them.
const classical = "ai.onnx.ml"

// classicalOpset is the first operator set that compares strings.
const classicalOpset = 19

// Layer returns the package that a program imports to have a node's operator spelt out: "" for
// those of every program, and of none.
func Layer(n *onnx.Node) string {
	if n.Domain == classical {
		switch n.Op {
		case "ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder",
			"LinearClassifier", "LinearRegressor",
			"Normalizer", "OneHotEncoder", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier",
			"TreeEnsembleRegressor":
			return "fmp/onnx/classical"
		}
	}
	return ""
}

// EnableClassical makes [Spell] know the operators of ai.onnx.ml. Package classical calls it, once
// and before anything runs; programs that do not import that package do not hold their code.
func EnableClassical() {
	for name, spell := range map[string]func(s *speller) []string{
		"ArrayFeatureExtractor":  spellArrayFeatureExtractor,
		"Binarizer":              spellBinarizer,
		"FeatureVectorizer":      spellFeatureVectorizer,
		"Imputer":                spellImputer,
		"LabelEncoder":           spellLabelEncoder,
		"LinearClassifier":       spellLinearClassifier,
		"LinearRegressor":        spellLinearRegressor,
		"Normalizer":             spellNormalizer,
		"OneHotEncoder":          spellOneHotEncoder,
		"Scaler":                 spellScaler,
		"TreeEnsemble":           spellTreeRegressor,
		"TreeEnsembleClassifier": spellTreeClassifier,
		"TreeEnsembleRegressor":  spellTreeRegressor,
	} {
		spellings[onnx.OpName{Domain: classical, Name: name}] = spell
	}
}

// cast returns a value in another element type.
func (s *speller) cast(v string, d onnx.DType) string {
	return s.opInt("Cast", []string{v}, "to", int(d))
}

// reals returns the input in the floats that are computed in: float64 stays, all others become
// float32. It changes s.d, the type that later constants are of.
func (s *speller) reals() string {
	if s.d == onnx.Float64 || s.d == onnx.Float32 {
		return s.node.Input(0)
	}
	s.d = onnx.Float32
	return s.cast(s.node.Input(0), onnx.Float32)
}

// table makes a constant of the type that is computed in. Values are rounded to float32 once, from
// the attribute's own number.
func (s *speller) table(v []float64, shape ...int) string {
	if s.d == onnx.Float64 {
		return s.constant(onnx.NewTensor(v, shape...))
	}
	narrow := make([]float32, len(v))
	for i, x := range v {
		narrow[i] = float32(x)
	}
	return s.constant(onnx.NewTensor(narrow, shape...))
}

// numbers reads an attribute that is a list of floats, or the tensor of the same name that takes
// its place in later versions.
func (s *speller) numbers(name string) []float64 {
	t := s.attrs.Tensor(name + "_as_tensor")
	if t == nil {
		t = s.attrs.Tensor(name)
	}
	if t == nil {
		t = onnx.Vector(s.attrs.Floats(name)...)
	}
	out := make([]float64, t.Len())
	for i := range out {
		out[i] = t.At(i)
	}
	return out
}

// reduced reduces one axis.
func (s *speller) reduced(op, x string, axis, keep int) string {
	return s.opInt(op, []string{x, s.ints(int64(axis))}, "keepdims", keep)
}

// transformed applies a post_transform to scores [n, classes]. PROBIT is refused: no standard
// operator computes the quantile of the normal distribution.
func (s *speller) transformed(scores, name string) string {
	switch name {
	case "NONE", "":
		return scores
	case "LOGISTIC":
		return s.un("Sigmoid", scores)
	case "SOFTMAX":
		return s.opInt("Softmax", []string{scores}, "axis", 1)
	// Less the highest score no exponential overflows.
	case "SOFTMAX_ZERO": // a score of 0 has no part in the sum
		top := s.reduced("ReduceMax", scores, 1, 1)
		e := s.un("Exp", s.bi("Sub", scores, top))
		is := s.bi("Greater", s.un("Abs", scores), s.num(1e-7))
		sum := s.reduced("ReduceSum", s.op("Where", []string{is, e, s.num(0)}), 1, 1)
		rest := s.mul(scores, s.un("Exp", s.un("Neg", top)))
		return s.bi("Div", s.op("Where", []string{is, e, rest}), sum)
	}
	try.Fail("post_transform is %q; supported are NONE, SOFTMAX, SOFTMAX_ZERO and LOGISTIC", name)
	return ""
}

// labels returns the node's class labels as a constant, and their number.
func (s *speller) labels(ints string) (string, int) {
	if names := s.attrs.Strs("classlabels_strings"); len(names) > 0 {
		return s.constant(onnx.Vector(names...)), len(names)
	}
	v := int64s(s.attrs.Ints(ints))
	if len(v) < 2 {
		try.Fail("it has %d class labels; supported are two or more", len(v))
	}
	return s.ints(v...), len(v)
}

// linear returns X Wᵀ + b, [n, rows]; 0 rows stand for as many as there are intercepts. W is [rows,
// features], as the attribute coefficients lists it row by row.
func (s *speller) linear(rows int) (string, int) {
	w, b := s.numbers("coefficients"), s.numbers("intercepts")
	rows = cmp.Or(rows, len(b))
	if rows < 1 || len(w) == 0 || len(w)%rows != 0 || len(b) != 0 && len(b) != rows {
		try.Fail("%d coefficients and %d intercepts do not make %d rows",
			len(w), len(b), rows)
	}
	x := s.reals()
	if s.d == onnx.Float64 { // the operator computes in float32
		s.d, x = onnx.Float32, s.cast(x, onnx.Float32)
	}
	y := s.bi("MatMul", x, s.un("Transpose", s.table(w, rows, len(w)/rows)))
	if len(b) > 0 {
		y = s.add(y, s.table(b, rows))
	}
	return y, rows
}

// spellLinearRegressor: X Wᵀ + b.
func spellLinearRegressor(s *speller) []string {
	y, _ := s.linear(s.attrs.Int("targets"))
	return []string{s.transformed(y, s.attrs.Str("post_transform"))}
}

// spellLinearClassifier: the label of the largest score, and the scores. One row for two classes is
// that of the second. The label follows from the scores before post_transform.
func spellLinearClassifier(s *speller) []string {
	labels, classes := s.labels("classlabels_ints")
	rows := cmp.Or(len(s.attrs.Floats("intercepts")), classes)
	y, rows := s.linear(rows)
	switch {
	case rows == classes:
		at := s.op("ArgMax", []string{y}, onnx.IntAttr("axis", 1), onnx.IntAttr("keepdims", 0))
		y = s.transformed(y, s.attrs.Str("post_transform"))
		return []string{s.bi("Gather", labels, at), y}
	case rows == 1 && classes == 2 && s.attrs.Str("post_transform") == "NONE":
		return s.second(labels, y, 0, true)
	}
	try.Fail("%d rows of coefficients for %d classes with post_transform %s are not supported",
		rows, classes, s.attrs.Str("post_transform"))
	return nil
}

// second returns the labels and scores of two classes from the second one's score [n, 1], which is
// above bound where it wins. The first one's is 1 - score (probabilities) or -score.
func (s *speller) second(labels, score string, bound float64, probabilities bool) []string {
	wins := s.bi("Greater", s.bi("Reshape", score, s.ints(-1)), s.num(bound))
	first := s.un("Neg", score)
	if probabilities {
		first = s.add(first, s.num(1))
	}
	both := s.opInt("Concat", []string{first, score}, "axis", 1)
	return []string{s.bi("Gather", labels, s.cast(wins, onnx.Int64)), both}
}

// spellScaler: (x - offset) · scale. A list of one number serves all columns by broadcasting.
func spellScaler(s *speller) []string {
	x, offset, scale := s.reals(), s.numbers("offset"), s.numbers("scale")
	if len(offset) > 0 {
		x = s.bi("Sub", x, s.table(offset, len(offset)))
	}
	if len(scale) > 0 {
		x = s.mul(x, s.table(scale, len(scale)))
	}
	return []string{s.cast(x, onnx.Float32)}
}

// spellNormalizer divides each row by its largest value, or by its L1 or L2 norm; a row of norm 0
// stays.
func spellNormalizer(s *speller) []string {
	x := s.cast(s.node.Input(0), onnx.Float32)
	s.d = onnx.Float32
	var norm string
	switch s.attrs.Str("norm") {
	case "MAX":
		norm = s.reduced("ReduceMax", x, -1, 1)
	case "L1":
		norm = s.reduced("ReduceSum", s.un("Abs", x), -1, 1)
	case "L2":
		norm = s.un("Sqrt", s.reduced("ReduceSum", s.mul(x, x), -1, 1))
	}
	norm = s.op("Where", []string{s.bi("Equal", norm, s.num(0)), s.num(1), norm})
	return []string{s.bi("Div", x, norm)}
}

// spellBinarizer: 1 where x is above the threshold, else 0. The result has the input's type, and
// NaN gives 0.
func spellBinarizer(s *speller) []string {
	d := s.d
	x := s.reals()
	return []string{s.cast(s.bi("Greater", x, s.num(float64(s.attrs.Float("threshold")))), d)}
}

// spellImputer puts a value, of each column or of all, in the place of those that are missing: NaN,
// or one that is named. A list of one value serves all columns by broadcasting.
func spellImputer(s *speller) []string {
	x := s.node.Input(0)
	if ints := s.attrs.Ints("imputed_value_int64s"); len(ints) > 0 && !s.d.IsFloat() {
		missing := s.bi("Equal", x, s.cast(s.ints(int64(s.attrs.Int("replaced_value_int64"))), s.d))
		return []string{s.op("Where", []string{missing, s.cast(s.ints(int64s(ints)...), s.d), x})}
	}
	floats := s.numbers("imputed_value_floats")
	if len(floats) == 0 || !s.d.IsFloat() {
		try.Fail("it has no imputed values for elements of %v", s.d)
	}
	replaced := float64(s.attrs.Float("replaced_value_float"))
	missing := ""
	if math.IsNaN(replaced) {
		missing = s.un("IsNaN", x)
	} else {
		missing = s.bi("Equal", x, s.num(replaced))
	}
	return []string{s.op("Where", []string{missing, s.table(floats, len(floats)), x})}
}

// spellFeatureVectorizer joins columns. A vector becomes rows of its inputdimensions; all results
// are float32.
func spellFeatureVectorizer(s *speller) []string {
	dims := s.attrs.Ints("inputdimensions")
	var parts []string
	for i, in := range s.node.Inputs {
		part := s.cast(in, onnx.Float32)
		if i < len(dims) {
			part = s.bi("Reshape", part, s.ints(-1, int64(dims[i])))
		}
		parts = append(parts, part)
	}
	return []string{s.opInt("Concat", parts, "axis", 1)}
}

// spellArrayFeatureExtractor takes positions of the last axis; a vector is one row.
func spellArrayFeatureExtractor(s *speller) []string {
	x := s.node.Input(0)
	if len(s.Shape(x)) == 1 {
		x = s.bi("Reshape", x, s.ints(1, -1))
	}
	return []string{s.opInt("Gather", []string{x, s.bi("Reshape", s.node.Input(1), s.ints(-1))},
		"axis", -1)}
}

// spellOneHotEncoder: 1 where a value is the category of its column, all 0 where it is none. The
// result has one axis more than the input, of as many positions as there are categories.
func spellOneHotEncoder(s *speller) []string {
	if !s.attrs.Bool("zeros") {
		try.Fail("zeros is 0, with which a value of no category is an error; supported is 1")
	}
	keys, x := "", s.node.Input(0)
	if names := s.attrs.Strs("cats_strings"); len(names) > 0 {
		keys = s.constant(onnx.Vector(names...))
	} else {
		keys, x = s.ints(int64s(s.attrs.Ints("cats_int64s"))...), s.cast(x, onnx.Int64)
	}
	return []string{s.cast(s.matches(x, keys), onnx.Float32)}
}

// matches says of every value which of the keys it is, on a last axis of its own.
func (s *speller) matches(x, keys string) string {
	return s.bi("Equal", s.bi("Unsqueeze", x, s.ints(-1)), keys)
}

// spellLabelEncoder looks each value up in a list of keys: its value, else the default. Every value
// is compared with every key, which takes memory of values times keys. Of equal keys the first one
// counts, as ArgMax takes the first of ties.
func spellLabelEncoder(s *speller) []string {
	keys, values := s.list("keys"), s.list("values")
	fallback := s.attrs.Tensor("default_tensor")
	// the first version, which maps both ways
	if classes := s.attrs.Strs("classes_strings"); len(classes) > 0 {
		numbers := make([]int64, len(classes))
		for i := range numbers {
			numbers[i] = int64(i)
		}
		keys, values = onnx.Vector(classes...), onnx.Vector(numbers...)
		if s.d != onnx.String {
			keys, values = values, keys
		}
	}
	if keys == nil || values == nil || keys.Len() != values.Len() || keys.Len() == 0 {
		try.Fail("its keys and values are not two lists of one length")
	}
	switch {
	case fallback != nil && fallback.Len() == 1 && fallback.DType == values.DType:
	case values.DType == onnx.String:
		fallback = onnx.Scalar(s.attrs.Str("default_string"))
	case values.DType == onnx.Int64:
		fallback = onnx.Scalar(int64(s.attrs.Int("default_int64")))
	case values.DType == onnx.Float32:
		fallback = onnx.Scalar(s.attrs.Float("default_float"))
	default:
		try.Fail("its default is not one value of the type of its values")
	}
	x := s.node.Input(0)
	is := s.matches(x, s.constant(keys))
	if keys.DType.IsFloat() { // NaN is a key like others
		at := make([]bool, keys.Len())
		for i := range at {
			at[i] = math.IsNaN(keys.At(i))
		}
		if slices.Contains(at, true) {
			nan := s.matches(s.un("IsNaN", x), s.constant(onnx.Vector(true)))
			is = s.bi("Or", is, s.bi("And", s.constant(onnx.Vector(at...)), nan))
		}
	}
	at := s.op("ArgMax", []string{s.cast(is, onnx.Int32)}, onnx.IntAttr("axis", -1),
		onnx.IntAttr("keepdims", 0))
	found := s.cast(s.reduced("ReduceMax", s.cast(is, onnx.Int32), -1, 0), onnx.Bool)
	return []string{s.op("Where",
		[]string{found, s.bi("Gather", s.constant(values), at), s.constant(fallback)})}
}

// list returns the attribute NAME_tensor, NAME_strings, NAME_int64s or NAME_floats as a vector; nil
// where there is none.
func (s *speller) list(name string) *onnx.Tensor {
	if t := s.attrs.Tensor(name + "_tensor"); t != nil {
		flat, err := t.Reshape(t.Len())
		if err != nil {
			return nil
		}
		return flat
	}
	if v := s.attrs.Strs(name + "_strings"); len(v) > 0 {
		return onnx.Vector(slices.Clone(v)...)
	}
	if a, ok := s.node.Attr(name + "_int64s"); ok && len(a.Ints) > 0 {
		return onnx.Vector(slices.Clone(a.Ints)...)
	}
	if v := s.attrs.Floats(name + "_floats"); len(v) > 0 {
		return onnx.Vector(slices.Clone(v)...)
	}
	return nil
}
