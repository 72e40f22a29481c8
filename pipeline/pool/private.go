package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/regularfile"
	"fmp/onnx/sorting"
	"fmp/pipeline/federate"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/sample"
	"fmp/pipeline/shipped"
)

// Release is one client's message of a private round, read from a file and checked.
type Release struct {
	*federate.Release
	Path, Digest string // SHA-256 of the file
}

// IsPrivate reports whether a file is a message of a private round, judged by its first bytes.
func IsPrivate(path string) bool { return federate.IsRelease(head(path)) }

// head returns the first two bytes of a file, which tell the kinds of messages apart; none where it
// cannot be read, as the reader of the whole file says why.
func head(path string) []byte {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 2)
	n, _ := f.Read(head)
	return head[:n]
}

// ReadReleases reads and checks the messages of one private round, each from a different client,
// all for one graph and one budget: those of most clients' messages, as [ReadUploads] has it. bad
// are the errors of those that cannot be used. progress is told of each; nil: nobody asks.
func ReadReleases(paths []string, want federate.Expect,
	progress func(stage string, done, total int)) (good []Release, bad []error) {
	return gather(len(paths), files(paths, progress), decodeRelease,
		rule{want, nil, "pool one of each, as two spend twice"})
}

// decodeRelease reads one message of a private round for [gather].
func decodeRelease(path string, data []byte, want federate.Expect) (Release, received, error) {
	r, err := federate.DecodeRelease(data, want)
	if err != nil {
		return Release{}, received{}, err
	}
	return Release{r, path, models.DigestBytes(data)},
		received{client: r.Client, matches: r.Matches,
			shared: shared{model: r.Model, round: r.Round, dx: r.Sums.K, c: r.Sums.Classes,
				budget: r.Budget.Effective()}}, nil
}

// Private is the messages of a private round with all that is needed to pool them.
type Private struct {
	Releases []Release // in the order of their clients' names
	// Graph is the client graph behind the messages, and Client its manifest: its Clip is the norm
	// that points were clipped to.
	Graph  *onnx.Model
	Client models.Manifest
	// Account is the budget that the round spends, and after Totals that of the sum that is kept.
	Account privacy.Account
	Samples int    // heads of the posterior
	Seed    uint64 // of counts and latents: noise for privacy has no seed

	predictor *onnx.Model
	manifest  models.Manifest // of the predictor
}

// NewPrivate prepares a private round. The predictor is a file, or "default" (or empty) for the one
// shipped with the program for the extractor. Its errors name two budgets in one round, shares for
// two servers, and a predictor of another kind or extractor.
func NewPrivate(releases []Release, graph *onnx.Model, client models.Manifest,
	o Options) (*Private, error) {
	if len(releases) == 0 {
		return nil, errors.New("pool: no uploads; give at least one")
	}
	if err := o.Unread(OfPrivate); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if graph == nil {
		return nil, fmt.Errorf("pool: the uploads are of a private round: %w", ErrNoGraph)
	}
	releases = slices.Clone(releases)
	sorting.By(releases, func(a, b Release) int { return strings.Compare(a.Client, b.Client) })
	p := &Private{Releases: releases, Graph: graph, Client: client, Samples: o.Samples,
		Seed: o.Seed}
	p.Samples = cmp.Or(p.Samples, ConjugateSamples)
	b := releases[0].Budget
	for _, r := range releases {
		if r.Budget.Effective() != b.Effective() {
			return nil, fmt.Errorf("pool: the budget of %s is %v; that of %s is %v, and a round "+
				"has one", r.Path, r.Budget, releases[0].Path, b)
		}
	}
	if b.Noise == privacy.TwoServers && releases[0].Share != nil {
		return nil, fmt.Errorf("pool: the uploads are shares for two servers, of which one alone " +
			"says nothing: serve the round (fmp serve --helper URL), and send each server its own")
	}
	p.Account = b.Spend(releases[0].Sums.Classes, len(releases))
	var err error
	if o.Predictor == "" || o.Predictor == "default" {
		p.predictor, p.manifest, err = shipped.Private(client)
	} else {
		p.predictor, p.manifest, err = models.Load(o.Predictor)
	}
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if p.manifest.Kind != models.KindPrivate {
		return nil, fmt.Errorf("pool: %s is %q by its manifest; uploads of a private round want a "+
			"private predictor, the file that fmp train private writes", o.Predictor,
			p.manifest.Kind)
	}
	if client.Clip <= 0 || client.K != p.manifest.K {
		return nil, fmt.Errorf("pool: the client graph has %d coordinates clipped to norm %v and "+
			"the predictor %d; use models that were made for each other (fmp fuse --upload "+
			"private)",
			client.K, client.Clip, p.manifest.K)
	}
	f := p.manifest
	f.C = 0 // its classes are the round's
	return p, models.Match(client, f)
}

// published is the noisy sum of a round as it is stored with the results.
type published struct {
	Inputs string `json:"inputs"` // SHA-256 of the messages' digests, in order
	// Messages are the digests; none in a sum of before they were kept.
	Messages []string        `json:"messages,omitempty"`
	Values   []int64         `json:"values"`
	Account  privacy.Account `json:"account"`
}

// MaxPublished is the maximum size of a stored noisy sum: 64 MiB.
const MaxPublished = 64 << 20

// Keeper stores the noisy sums of rounds in which the server adds the noise.
type Keeper interface {
	// Keep returns the sum stored for the messages of which inputs is the digest. Where there is
	// none it stores that of draw, which is told how often noise was drawn before for one of the
	// messages, at most. clients has the client of each digest under which its message may be in
	// another sum.
	Keep(inputs string, clients map[string]string,
		draw func(before int) ([]byte, error)) ([]byte, error)
}

// Totals returns the round's noisy sums: of points clipped to a norm, and of counts, in whole steps
// (privacy.Release). Each number is the clients' sum with noise of the account's variance. If a
// server adds the noise, it is drawn once and the sum is stored: pooling the same messages again
// returns the same sum, as a second draw would spend the budget a second time. With two servers the
// releases hold no sums, and open returns the noisy sum; otherwise open is nil. Digests are sorted
// before they name the sum, so that the order of files draws no second noise.
func (p *Private) Totals(keeper Keeper,
	open func() (*privacy.Release, error)) (*privacy.Totals, error) {
	sum := privacy.NewRelease(p.Releases[0].Sums.Classes, p.Releases[0].Sums.K)
	digests := make([]string, len(p.Releases))
	for i, r := range p.Releases {
		digests[i] = r.Digest
		if open != nil {
			continue
		}
		if err := sum.Add(r.Sums); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Path, err)
		}
	}
	// With local noise the sum of the messages has it already.
	if p.Account.Noise != privacy.Local {
		slices.Sort(digests)
		var err error
		if sum, err = p.noisy(digests, sum, keeper, open); err != nil {
			return nil, err
		}
	}
	return sum.Totals(p.Client.Clip, p.Account.Variance()), nil
}

// noisy returns the stored sum of the messages with a server's noise, which is drawn and stored
// where there is none, and sets the account. A stored sum counts only with these inputs and this
// budget, so that no file of another round stands in.
func (p *Private) noisy(messages []string, sum *privacy.Release, keeper Keeper,
	open func() (*privacy.Release, error)) (*privacy.Release, error) {
	of := sha256.Sum256([]byte(strings.Join(messages, "\n")))
	inputs := hex.EncodeToString(of[:])
	clients, err := p.clients()
	if err != nil {
		return nil, err
	}
	data, err := keeper.Keep(inputs, clients, func(before int) ([]byte, error) {
		var err error
		if open != nil {
			sum, err = open()
		} else {
			err = sum.AddNoise(p.Account.Deviation, rand.Reader)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(published{inputs, messages, sum.Values, p.spent(before + 1)})
	})
	if err != nil {
		return nil, err
	}
	var was published
	if err := json.Unmarshal(data, &was); err != nil || len(was.Values) != len(sum.Values) {
		return nil, fmt.Errorf("%v is not the noisy sum of a private round; move it away", keeper)
	}
	if was.Inputs != inputs || was.Account != p.spent(was.Account.Draws) {
		return nil, fmt.Errorf("%v is the noisy sum of other uploads or another budget: choose "+
			"another --output", keeper)
	}
	sum.Values, p.Account = was.Values, was.Account
	return sum, nil
}

// clients returns the client of each digest that its message has, with its salt or without: an
// earlier program's had none, and was given one since. That without tells of the images, and is not
// kept.
func (p *Private) clients() (map[string]string, error) {
	clients := map[string]string{}
	for _, r := range p.Releases {
		clients[r.Digest] = r.Client
		bare := *r.Release
		if bare.Salt == ([len(bare.Salt)]byte{}) {
			continue
		}
		bare.Salt = [len(bare.Salt)]byte{}
		data, err := bare.Encode()
		if err != nil {
			return nil, err
		}
		clients[models.DigestBytes(data)] = r.Client
	}
	return clients, nil
}

// spent is the account of a message for whose sums noise was drawn some number of times: k sums
// with noise of sigma are one with sigma/sqrt(k) ([privacy.Epsilon]). Epsilon is rounded up.
func (p *Private) spent(draws int) privacy.Account {
	a := p.Account
	if draws > 1 {
		a.Draws = draws
		a.Epsilon = math.Ceil(1e4*privacy.Epsilon(a.Sigma/math.Sqrt(float64(draws)), a.Delta)) / 1e4
	}
	return a
}

// Posterior samples the posterior given the totals. It reads noisy totals alone, and so costs no
// privacy. Numbers of images are drawn given their noisy totals, and class means given both.
func (p *Private) Posterior(ctx context.Context, eng engine.Engine,
	totals *privacy.Totals) (*posterior.Result, error) {
	v, err := sample.NewPrivate(eng, p.predictor)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return (&posterior.PrivateRound{Totals: totals, Account: &p.Account, Seed: p.Seed,
		Stream: "pool"}).NoiseAware(ctx, v, p.Samples)
}

// Classifier returns the classifier, with the account in its manifest; see [Round.Classifier].
func (p *Private) Classifier(ctx context.Context, r *posterior.Result, rows, samples bool,
	command string) (*onnx.Model, error) {
	features, err := featureGraph(p.Graph, p.Client, rows)
	if err != nil {
		return nil, err
	}
	account, err := json.Marshal(p.Account)
	if err != nil {
		return nil, err
	}
	o := models.Origin{Method: "FMP-DP", Client: p.Client.Digest, Predictor: p.manifest.Digest,
		Protocol: "shared", Round: p.Releases[0].Round, Private: account}
	// names and digests only; the number of a client's images must not be revealed
	for _, u := range p.Releases {
		o.Clients = append(o.Clients, models.OriginClient{Name: u.Client, Upload: u.Digest})
	}
	f := p.Client
	f.Seed, f.Command = p.Seed, command
	return r.Classifier(ctx, features, samples, f, o)
}
