package report

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
	"fmp/pipeline/tally/pooled"
)

// TestCardOfPrivacy: card and page state what a private round spent, and no number of images that
// its uploads do not tell.
func TestCardOfPrivacy(t *testing.T) {
	const none, spends = "no noise was added", "epsilon 4, delta 1e-05 for one image added or removed, noise: local"
	account := must.Get(json.Marshal(privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
		Relation: privacy.AddRemove, Noise: privacy.Local}.Spend(3, 2)))(t)
	for _, c := range []struct {
		private     string
		n           int
		clients     string
		card, page  string
		lacks, also string
	}{
		{"", 30, "1 clients with 30 images: a (30)", none, "", "epsilon", ""},
		{string(account), 0, "1 clients with numbers of images that are not stated: a", spends, spends, none, "(0)"},
		{string(account), 30, "1 clients with 30 images: a (30)", spends, spends, none, ""},
		{`{"epsilon":1e9}`, 0, "not stated: a", "cannot be read", "cannot be read", none, "epsilon"},
	} {
		r := &evaluate.Result{Images: 1, Origin: models.Origin{Method: "FMP-DP", Private: []byte(c.private),
			Clients: []models.OriginClient{{Name: "a", N: c.n}}}}
		r.Uncertainty, r.Risk = &metric.Uncertainty{}, []metric.Risk{{Coverage: 1}}
		var card, page strings.Builder
		must.Do(t, Card(&card, "a classifier", "images", r))
		must.Do(t, EvaluationPage(&page, "a classifier", r))
		plain := strings.ReplaceAll(card.String(), `\`, "")
		for _, want := range []struct{ text, of string }{{plain, c.clients}, {plain, c.card},
			{page.String(), c.clients}, {page.String(), c.page}} {
			if !strings.Contains(want.text, want.of) {
				t.Errorf("%s, %d images: it lacks %q:\n%s", c.private, c.n, want.of, want.text)
			}
		}
		for _, not := range []string{c.lacks, c.also} {
			if not != "" && strings.Contains(plain, not) {
				t.Errorf("%s, %d images: the card says %q:\n%s", c.private, c.n, not, plain)
			}
		}
	}
}

// TestSitesOfNoise: counts with noise have shares of 0 to 1 and no mean confidence.
func TestSitesOfNoise(t *testing.T) {
	mean := 0.9
	var b strings.Builder
	must.Do(t, Sites(&b, &pooled.Result{Curve: []tally.Bin{{From: 0, To: 1, N: 1, Right: 1},
		{From: 1, To: 2, N: 20, Right: -1}, {From: 2, To: 3, N: 20, Right: 21},
		{From: 3, To: 15, N: 5, Right: 4, Confidence: &mean}, {From: 0, To: 1, N: -4}}}, nil))
	_, got, _ := strings.Cut(b.String(), "| ---: | ---: | ---: |\n")
	if want := "| 0.07–0.13 | 20 | – | 0.000 |\n| 0.13–0.20 | 20 | – | 1.000 |\n" +
		"| 0.20–1.00 | 5 | 0.900 | 0.800 |\n"; got != want {
		t.Errorf("curve\n%s; want\n%s", got, want)
	}
}

// TestCardOfGuarantee: a model card states the theorem that the sets are by, for whom it is, and how
// many clients' false points it survives.
func TestCardOfGuarantee(t *testing.T) {
	const (
		differ = "clients may differ in any way"
		bound  = "by Hoeffding's bound"
		alike  = "honest clients draw their points and new images alike"
		voids  = "and clients that send false points"
		more   = "false points of more clients than that"
	)
	for name, c := range map[string]struct {
		sets        models.OriginSets
		says, lacks []string
	}{
		"owner": {models.OriginSets{}, []string{"set of a new image holds", "new images are drawn as those were"},
			[]string{differ, bound, alike, voids, more, "these"}},
		"clients": {models.OriginSets{Clients: 6}, []string{differ, bound, voids, "of these clients holds"},
			[]string{alike, more, "Left out", "group"}},
		"none may be false": {models.OriginSets{Clients: 3, False: []int{0}, LeftOut: []string{"x", "y"}},
			[]string{differ, bound, voids, "contradict the others': x, y."}, []string{alike, more}},
		"one may be false": {models.OriginSets{Clients: 6, False: []int{1}},
			[]string{"the points of 1 of the clients may be false", alike, more, "of the honest ones of these"},
			[]string{differ, bound, voids, "group"}},
		"by class": {models.OriginSets{Clients: 6, False: []int{1}, ByClass: true},
			[]string{differ, bound, voids, "of any class holds"}, []string{alike, more, "shares"}},
		"named shares": {models.OriginSets{Clients: 6, False: []int{1}, Proportions: []float64{0.9, 0.1}},
			[]string{differ, bound, voids, "shares a 0.9, b 0.1 holds"}, []string{alike, more}},
		"groups": {models.OriginSets{Clients: 6, Groups: []string{"north", "south"}},
			[]string{differ, bound, "in each group of clients (north, south), holds", "client of a group in"},
			[]string{alike, more}},
		"groups of which some may be false": {models.OriginSets{Clients: 9, False: []int{2, 0, 1},
			Groups: []string{"north", "south", "west"}},
			[]string{"points of 2 of the clients of north and 1 of the clients of west may be", more},
			[]string{differ, bound, "of south"}},
	} {
		c.sets.Level, c.sets.Images = 0.9, 60
		var b strings.Builder
		must.Do(t, Card(&b, "a classifier", "images", &evaluate.Result{Classes: []string{"a", "b"},
			Origin: models.Origin{Sets: &c.sets}}))
		_, got, _ := strings.Cut(strings.ReplaceAll(b.String(), `\`, ""), "## Guarantee of the sets")
		for i, texts := range [][]string{c.lacks, c.says} {
			for _, text := range texts {
				if strings.Contains(got, text) != (i == 1) {
					t.Errorf("%s: %q, in the card %v:\n%s", name, text, i == 0, got)
				}
			}
		}
	}
}

// TestCard: a model card says how probabilities were calibrated, with the scores before and after,
// and how far intervals reach where the predictor has learned it.
func TestCard(t *testing.T) {
	scaling := &models.OriginScaling{Images: 90, From: "own", Scaling: models.Scaling{
		Kind: models.Temperature, Factor: []float32{2}}, Before: models.ScalingScores{ECE: 0.139},
		After: models.ScalingScores{ECE: 0.041}}
	for want, origin := range map[string]models.Origin{
		"on 90 labelled images of own by a temperature of 0.5": {Scaling: scaling},
		"| before | 0.0000 | 0.1390 |":                         {Scaling: scaling},
		"| after | 0.0000 | 0.0410 |":                          {Scaling: scaling},
		"reach 0.87 half widths down and 1.14 up": {Method: "FMP",
			Ends: &models.Ends{Down: 0.87, Up: 1.14}},
		"": {Method: "FMP"},
	} {
		var b strings.Builder
		must.Do(t, Card(&b, "a classifier", "images", &evaluate.Result{Origin: origin}))
		if got := b.String(); !strings.Contains(got, want) ||
			strings.Contains(got, "half widths") != (origin.Ends != nil) {
			t.Errorf("the card lacks %q, or tells ends that it has not:\n%s", want, got)
		}
	}
}

// TestHostileCard: names of classes, files and clients are text and nothing else in a model card
// and in a page.
func TestHostileCard(t *testing.T) {
	const evil = "</td><script>alert(1)</script>[x](javascript:y)|**b**\n# head\x1b[2J"
	r := &evaluate.Result{Images: 1, Classes: []string{evil, "b"}, Confusion: [][]int{{1, 0}, {0, 0}},
		ByClass: []evaluate.Class{{Name: evil, Images: 1}, {Name: "b"}},
		Origin: models.Origin{Method: "FMP", Client: evil, Predictor: evil,
			Clients: []models.OriginClient{{Name: evil, N: 1}}}, File: evil,
		Sure: []evaluate.Example{{File: evil, Truth: evil, Says: "b"}}}
	r.Manifest.Licence, r.Manifest.TrainingData, r.Manifest.Extractor = evil, evil, evil
	r.Uncertainty, r.Risk = &metric.Uncertainty{}, []metric.Risk{{Coverage: 1}}
	r.Origin.Scaling, r.Calibration.Gap = &models.OriginScaling{Scaling: models.Scaling{Kind: evil},
		From: evil}, 0.5
	r.Origin.Sets = &models.OriginSets{Clients: 9, From: evil, Groups: []string{evil},
		False: []int{1}, LeftOut: []string{evil}}
	var card, page strings.Builder
	must.Do(t, Card(&card, evil, evil, r))
	plain := regexp.MustCompile(`\\.`).ReplaceAllString(card.String(), "")
	for _, not := range []string{"<", "](", "**b**", "\n# head", "\x1b"} {
		if strings.Contains(plain, not) {
			t.Errorf("the card has %q:\n%s", not, card.String())
		}
	}
	must.Do(t, EvaluationPage(&page, evil, r))
	if strings.Contains(page.String(), "<script>alert") ||
		strings.Contains(page.String(), "</td><script") {
		t.Error("the page has an element of a class's name")
	}
}

// TestSitesHidden: what sites hide is a range without a figure, heterogeneity a bound, and who is left
// out is named.
func TestSitesHidden(t *testing.T) {
	figure := func(v float64) *float64 { return &v }
	open := pooled.Share{Low: 0.9, High: 1}
	told := pooled.Overall{Sites: 2, Hidden: 1, Pooled: open, Typical: open, MedianBounds: &[2]float64{0.91, 0.99},
		DF: 1, Q: figure(3), P: figure(0.083), I2: figure(0.67), Tau2: figure(1)}
	none := pooled.Overall{Sites: 2, Hidden: 2, Pooled: open, Typical: open, DF: 1}
	for name, c := range map[string]struct {
		r           pooled.Result
		says, lacks string
	}{
		"share":     {pooled.Result{Accuracy: told}, "0.900–1.000 of all images", "0.950"},
		"median":    {pooled.Result{Accuracy: told}, "median site 0.910–0.990\n", "0.950"},
		"hides":     {pooled.Result{Accuracy: told}, "hide their count: a range without a figure before it begins", "NaN"},
		"at least":  {pooled.Result{Accuracy: told}, "I² at least 67%, Cochran's Q at least 3.0", "= 0.083"},
		"at most":   {pooled.Result{Accuracy: told}, "(p at most 0.083)", "= 0.083"},
		"none told": {pooled.Result{Accuracy: none}, "2 of 2 sites hide", "Cochran"},
		"left out": {pooled.Result{LeftOut: []pooled.LeftOut{{Site: "ward|2", Why: "others"}}},
			"report is of others", "ward|2"},
		"few": {pooled.Result{Sites: []pooled.Site{{Few: "wrong", FewSets: "missed", Least: 7}}},
			"fewer than 7 wrong, fewer than 7 missed", "counts below"},
		"few missed": {pooled.Result{Sites: []pooled.Site{{FewSets: "missed", Least: 7}}},
			"| fewer than 7 missed |", "counts below"},
		"few of any": {pooled.Result{Sites: []pooled.Site{{FewSets: "any", Least: 7}}},
			"| fewer than 7 in some count of sets |", "7 any"},
	} {
		var b strings.Builder
		must.Do(t, Sites(&b, &c.r, nil))
		if got := b.String(); !strings.Contains(got, c.says) || strings.Contains(got, c.lacks) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}
