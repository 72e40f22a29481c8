package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/onnx/suggest"
	"fmp/pipeline/conformal"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/option"
)

// Options are the options of a round. fmp pool reads them as flags, variables and settings, a round
// file as keys, by the same tags ([settings]); the zero options are the defaults. The tag rounds
// lists the kinds of uploads that read an option: given with others it is an error, by
// [Options.Unread].
type Options struct {
	Seed      uint64  `yaml:"seed" default:"1" rounds:"points means moments private" doc:"seed that every random stream of the round is named under"`
	Predictor string  `yaml:"predictor" setting:"predictor.model" flag:"predictor" default:"default" allowed:"default|untrained|FILE" rounds:"points means private" doc:"ONNX file of the predictor; default: the shipped one of the extractor behind the uploads; untrained: a smoothed bootstrap of points"`
	Open      string  `yaml:"open" setting:"open.model" default:"default" allowed:"default|none|FILE" rounds:"means" doc:"ONNX file of the open predictor, for classes that the corpus lacks; default: the shipped one of the extractor behind the uploads"`
	Scope     string  `yaml:"scope" setting:"posterior.scope" flag:"scope" default:"auto" allowed:"auto|closed|open" rounds:"means" doc:"form of FMP: closed (the corpus has the clients' classes), open (it lacks them), or auto: open where the uploads lie outside what the corpus's classes span"`
	Samples   int     `yaml:"samples" setting:"posterior.samples" flag:"samples" default:"0" allowed:"0..10000" rounds:"points means moments private" doc:"number S of posterior samples; 0 means 100 of a predictor in closed or open form, 20 of one that draws points"`
	Fresh     int     `yaml:"fresh" setting:"predictor.fresh" flag:"fresh" default:"0" allowed:"0..100000" rounds:"points" doc:"number n' of points drawn for one posterior sample; 0 means the predictor's own"`
	L2        float64 `yaml:"l2" setting:"erm.l2" flag:"l2" default:"0" allowed:"0|1e-6..1e6" rounds:"points" doc:"L2 penalty of the fits to drawn points (sum form); 0 means the predictor's own"`
	Tolerance float64 `yaml:"tolerance" setting:"erm.tolerance" default:"1e-8" allowed:"1e-12..0.01" rounds:"points" doc:"gradient norm, relative to that at zero, at which these fits stop"`
	Trust     bool    `yaml:"trust" default:"false" rounds:"points means moments" doc:"take every client for honest; else each sample of a predictor in closed form draws who is"`
	Corpus    string  `yaml:"corpus" setting:"corpus.upload" flag:"corpus" default:"" allowed:"|FILE" rounds:"moments" doc:"upload of moments of the server's own images, of any classes: a prior. Clients left out say how far it is believed; where kappa is known or clients cannot be asked, calibration points do, and without any it is not read"`
	Anchor    string  `yaml:"anchor" default:"default" allowed:"default|none|FILE" rounds:"means moments" doc:"upload of images that the server knows, its own or those of an earlier round, by which clients are judged. Of moments it may be one of the round's own uploads, which then counts in full but in merged sums; default: the one that comes with the program for the extractor and the classes, if one does"`
	Sets      `yaml:"sets"`

	For string `yaml:"-"` // client whose images the classifier is for; "": a client to come
	// Lenient makes no sets where points do not prove them, also of a level that was asked for, as
	// uploads may still come.
	Lenient bool `yaml:"-"`
	Threads int  `yaml:"-"` // 0: one per core; results do not depend on it
	// CorpusMoments and AnchorUpload hold the uploads of Corpus and Anchor, once read
	// ([Options.ReadFiles]).
	CorpusMoments *discriminant.Client `yaml:"-"`
	AnchorUpload  *federate.Upload     `yaml:"-" json:"-"`

	acting []Upload // of Corpus and Anchor, as they were read
	alike  bool     // no client has an effect
	folds  bool     // each upload is the sum of some clients of a state
}

// Sets are the options of the prediction sets.
type Sets struct {
	Level       float64         `yaml:"level" flag:"level" default:"0" allowed:"-1|0|0.5..0.999" rounds:"means moments" doc:"coverage of the prediction sets; 0 is 0.9 where the uploads have calibration points enough, -1 none"`
	Score       conformal.Score `yaml:"score" flag:"score" default:"probability" allowed:"probability|adaptive" rounds:"means moments" doc:"conformity score of the sets: probability (small sets) or adaptive (larger sets for hard images)"`
	ByClass     bool            `yaml:"by_class" flag:"by-class" default:"false" rounds:"means moments" doc:"sets that hold the images of each class as often as stated, whatever the shares of the classes; a class with too few calibration images is in every set"`
	Proportions string          `yaml:"proportions" flag:"proportions" default:"" rounds:"means moments" doc:"shares of the classes among new images, where they are not those of the calibration images: equal, or NAME=SHARE,..., divided by their sum"`
	Groups      string          `yaml:"groups" flag:"groups" default:"" rounds:"means moments" doc:"sets that hold for the images of each group of clients, NAME=CLIENT,...;..."`
	// FalseShare of a round without judgement (Trust), or for one client, is 0; nil stands for the
	// default.
	FalseShare *float64 `yaml:"false_share" flag:"false-share" default:"0.2" allowed:"0..<0.5" rounds:"means moments" doc:"share of the clients whose calibration points may be false without that the sets hold less often. Of sets by class or for shares it leaves out clients whose points are contradicted, and promises nothing"`
}

// Kinds of uploads, as the tag rounds names them: [Round.kind] tells that of a round.
const (
	ofPoints  = "points"
	ofMeans   = "means"
	ofMoments = "moments"
	// OfPrivate is the kind of a private round.
	OfPrivate = "private"
)

var kindNames = map[string]string{ofPoints: "an embedding's points", ofMeans: "class means",
	ofMoments: "moments", OfPrivate: "a private round"}

// Unread returns an error for options that were given and that uploads of a kind do not read.
func (o *Options) Unread(kind string) error {
	given := *o // files that were read already are given too
	if o.CorpusMoments != nil {
		given.Corpus = "moments"
	}
	if o.AnchorUpload != nil {
		given.Anchor = "an upload"
	}
	for _, s := range option.List(&given) {
		kinds := strings.Fields(s.Tag.Get("rounds"))
		if slices.Contains(kinds, kind) || !s.Given() {
			continue
		}
		for i, k := range kinds {
			kinds[i] = kindNames[k]
		}
		return fmt.Errorf("%s (setting %s) is for uploads of %s, and these are of %s, which do "+
			"not read it: leave it out", s.Name, s.Key, suggest.Or(kinds...), kindNames[kind])
	}
	return nil
}

// ReadFiles reads the files of Corpus and Anchor, for all rounds that are made with these options.
// A second call reads nothing again.
func (o *Options) ReadFiles() error {
	if o.Corpus != "" && o.CorpusMoments == nil {
		u, err := readUpload("corpus", o.Corpus)
		if err != nil {
			return err
		}
		if o.CorpusMoments, err = corpusOf(u); err != nil {
			return err
		}
		o.acting = append(o.acting, u)
	}
	if o.AnchorUpload != nil || slices.Contains([]string{"", ShippedAnchor, LeftOut}, o.Anchor) {
		return nil
	}
	u, err := readUpload("anchor", o.Anchor)
	if err != nil {
		return err
	}
	o.AnchorUpload, o.acting = u.Upload, append(o.acting, u)
	return nil
}

// Withdrawn returns an error where the corpus or the anchor is an upload that is withdrawn, or
// another of its client in that round: it would go on acting on the classifier.
func (o *Options) Withdrawn(client, digest string, round uint64, graph string) error {
	for _, u := range o.acting {
		if u.Digest == digest || u.Client == client && u.Round == round && u.Model == graph {
			return fmt.Errorf("pool: %s: it is an upload of client %q, which withdraws: give "+
				"another corpus or anchor, or none", u.Path, client)
		}
	}
	return nil
}

// Digest returns the SHA-256 of the options that are not their defaults, in hex. Files count by
// their contents. A new option at its default changes no digest. The hash is of lines KEY="VALUE",
// in the order of the fields.
func (o *Options) Digest() (string, error) {
	unset := option.Default[Options]()
	defaults, hash := option.List(&unset), sha256.New()
	for i, s := range option.List(o) {
		v := reflect.Indirect(s.Value)
		if !v.IsValid() || reflect.DeepEqual(s.Value.Interface(), defaults[i].Value.Interface()) {
			continue
		}
		text := fmt.Sprint(v.Interface())
		if s.NamesFile() {
			data, err := regularfile.ReadFile(text, serde.MaxFileBytes)
			if err != nil {
				return "", fmt.Errorf("setting %s: %w", s.Key, err)
			}
			text = models.DigestBytes(data)
		}
		fmt.Fprintf(hash, "%s=%q\n", s.Key, text)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
