package moments

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

func TestTemperatures(t *testing.T) {
	if a, b := Temperature(0), Temperature(Temperatures-1); a != LowestTemperature ||
		math.Abs(b-HighestTemperature) > 1e-12 {
		t.Errorf("the grid goes from %v to %v; want %v to %v", a, b, LowestTemperature,
			HighestTemperature)
	}
	for i := 2; i < Temperatures; i++ {
		if r, s := Temperature(i)/Temperature(i-1),
			Temperature(1)/Temperature(0); math.Abs(r-s) > 1e-12 {
			t.Errorf("temperature %d is %v times the one before; want %v", i, r, s)
		}
	}
	for i, v := range temperatures() {
		if math.Abs(v/Temperature(i)-1) > 1e-14 {
			t.Errorf("temperature %d of the client's grid is %v; want %v", i, v, Temperature(i))
		}
	}
}

func TestCurvesMatchTheReference(t *testing.T) {
	data := must.Get(os.ReadFile("testdata/curves.json"))(t)
	var cases []struct {
		K, C   int
		Rows   []float32
		Labels []int
		Own    Curve
	}
	must.Do(t, json.Unmarshal(data, &cases))
	grid := temperatures()
	for i, c := range cases {
		rows, labels := chosenOf(c.Rows, c.K, c.Labels, Measured(c.Labels, c.C, nil))
		s := newParted(rows, c.K, labels)
		near(t, fmt.Sprintf("curve %d", i), s.leftOut(&grid, nil), c.Own)
	}
}

func near(t *testing.T, what string, got, want Curve) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(v-want[i]) <= 1e-8) {
			t.Errorf("%s is %.12g at temperature %.3g; want %.12g", what, v, Temperature(i), want[i])
			return
		}
	}
}

func someRows(r *rand.Rand, n, k, c int) (rows []float32, labels []int) {
	means := make([]float64, c*k)
	for i := range means {
		means[i] = r.NormFloat64()
	}
	for range n {
		y := r.IntN(c)
		labels = append(labels, y)
		for j := range k {
			rows = append(rows, float32(means[y*k+j]+r.NormFloat64()*(.5+float64(j)/float64(k))))
		}
	}
	return rows, labels
}

func TestCurveOf(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	rows, labels := someRows(r, 60, 7, 3)
	c, err := CurveOf(rows, 7, labels, 4, "a")
	if err != nil || c == nil {
		t.Fatalf("curves of 60 rows: %v, error %v", c, err)
	}
	must.Do(t, c.Check(60))
	if again, _ := CurveOf(rows, 7, labels, 4, "a"); !reflect.DeepEqual(again, c) {
		t.Error("the same rows have other curves")
	}
	if other, _ := CurveOf(rows, 7, labels, 4, "b"); other.Curve != c.Curve {
		t.Error("another key: want the same curve, as all rows are measured")
	}
	many, of := someRows(r, 500, 7, 3)
	a, b := must.Get(CurveOf(many, 7, of, 3, "a"))(t), must.Get(CurveOf(many, 7, of, 3, "b"))(t)
	if a.Curve == b.Curve {
		t.Error("another key: want another subset of 500 rows")
	}
	for what, l := range map[string][]int{"two of each": {0, 0, 1, 1, 2, 2},
		"one class": {1, 1, 1, 1, 1, 1}, "one cell": {1, 1, 1, 1, 2, 2}} {
		if c, err := CurveOf(rows[:6*7], 7, l, 3, ""); c != nil || err != nil {
			t.Errorf("%s: curves %v, error %v; want none", what, c, err)
		}
	}
	if c, err := CurveOf(make([]float32, 6*7), 7, []int{0, 0, 0, 1, 1, 1}, 2, ""); c != nil ||
		err != nil {
		t.Errorf("rows that are all alike: curves %v, error %v; want none", c, err)
	}
	must.Fail(CurveOf(rows, 7, labels, 2, ""))(t, "", "a label beyond the classes is taken")
}

// The numbers are those of every machine; a build that fuses products and sums, or another
// logarithm, has others.
func TestCurvesHaveTheSameBytesEverywhere(t *testing.T) {
	if got, want := fmt.Sprintf("%x %x %x", exponential(-1), logarithm(10),
		logarithm(1e-3)), "0x1.78b56362cef38p-02 0x1.26bb1bbb55516p+01 -0x1.ba18a998fffap+02"; got != want {
		t.Errorf("exponential and logarithms are %s; want %s", got, want)
	}
	rows, labels := make([]float32, 12*5), []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}
	r := rng.New(1, "rows")
	for i := range rows {
		rows[i] = float32(r.Uint64()>>40)/(1<<24) + float32(labels[i/5]*(i%5))/8
	}
	h := seedOf(float32s(must.Get(CurveOf(rows, 5, labels, 3, "client"))(t).Curve), "")
	if got, want := fmt.Sprintf("%x", h), "81c250643c3ec592"; got != want {
		t.Errorf("curves have the hash %s; want %s", got, want)
	}
}

func float32s(c Curve) (out []float32) {
	for _, v := range c {
		out = append(out, float32(v))
	}
	return out
}

func TestExponentialAndLogarithm(t *testing.T) {
	for x := -745.0; x <= 0; x += .0137 {
		if got, want := exponential(x), math.Exp(x); math.Abs(got-want) > 1e-15*want+1e-300 {
			t.Errorf("e^%v is %v; want %v", x, got, want)
		}
		y := math.Exp(x / 20)
		for _, y := range []float64{y, 1 / y} {
			if got, want := logarithm(y),
				math.Log(y); math.Abs(got-want) > 1e-15*max(1, math.Abs(want)) {
				t.Errorf("ln %v is %v; want %v", y, got, want)
			}
		}
	}
	if exponential(0) != 1 || logarithm(1) != 0 {
		t.Errorf("e^0 is %v and ln 1 is %v", exponential(0), logarithm(1))
	}
}

func TestMeasuredImagesAreBounded(t *testing.T) {
	tests := []struct {
		name          string
		classes, each int
		first         int // images of the first class
		images, held  int
	}{
		{"few", 10, 20, 20, 200, 10},
		{"cells of two", 10, 2, 5, 0, 0},
		{"many images", 10, 500, 500, 400, 10},
		{"many classes", 1000, 20, 20, 400, 50},
		{"one large class", 10, 5, 2000, 400, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var labels []int
			for y := range tt.classes {
				n := tt.each
				if y == 0 {
					n = tt.first
				}
				labels = append(labels, slices.Repeat([]int{y}, n)...)
			}
			rows := make([]float32, len(labels))
			for i := range rows {
				rows[i] = float32(i)
			}
			got, kept := chosenOf(rows, 1, labels, Measured(labels, tt.classes, rng.New(1, "test")))
			held := map[int]int{}
			for i, y := range kept {
				held[y]++
				if labels[int(got[i])] != y {
					t.Fatalf("row %v has the label %d; want %d", got[i], y, labels[int(got[i])])
				}
			}
			if len(kept) != tt.images || len(held) != tt.held {
				t.Errorf("%d images of %d classes are measured; want %d of %d", len(kept), len(held),
					tt.images, tt.held)
			}
			for y, n := range held {
				if n < minCell {
					t.Errorf("class %d has %d images", y, n)
				}
			}
		})
	}
}

func TestCurvesCheck(t *testing.T) {
	fine := ClientCurve{}
	fine.Curve[3] = -32 * 6
	must.Do(t, fine.Check(6))
	for _, v := range []float64{math.NaN(), math.Inf(-1), CurveStep, -32*6 - CurveStep, -CurveStep / 2} {
		c := ClientCurve{}
		c.Curve[48] = v
		if c.Check(6) == nil {
			t.Errorf("%v is taken", v)
		}
	}
	c := ClientCurve{}
	c.Curve[0] = -32*MaxCurveImages - CurveStep
	if c.Check(100000) == nil {
		t.Error("a curve of more images than are measured is taken")
	}
}

// TestLeftOutOfRandom: the second curve is that of rows whose class is drawn, a mean over classes.
func TestLeftOutOfRandom(t *testing.T) {
	grid := temperatures()
	r := rand.New(rand.NewPCG(4, 1))
	rows, labels := someRows(r, 30, 6, 3)
	rows, labels = chosenOf(rows, 6, labels, Measured(labels, 3, nil))
	own, random := LeftOut(rows, 6, labels)
	s := newParted(rows, 6, labels)
	if want := s.leftOut(&grid, nil); *own != want {
		t.Error("the first curve is not that of the rows")
	}
	for i := range grid {
		if !(random[i] < own[i]) || !(random[i] >= MinLikelihood*float64(len(labels))) {
			t.Fatalf("temperature %.2f: %.3f of random classes, %.3f of their own", grid[i], random[i], own[i])
		}
	}
	// all classes are as likely at a high temperature
	last := -math.Log(float64(s.c)) * float64(len(labels))
	if !(math.Abs(random[Temperatures-1]-last) < 0.01*math.Abs(last)) {
		t.Errorf("%.3f of random classes at temperature %.0f; want about %.3f", random[Temperatures-1],
			grid[Temperatures-1], last)
	}
	if a, b := LeftOut(make([]float32, 12), 2, []int{0, 0, 0, 1, 1, 1}); a != nil || b != nil {
		t.Error("rows that do not spread have curves")
	}
}
