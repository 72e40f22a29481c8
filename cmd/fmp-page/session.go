// Command fmp-page is the client, and the classifier, in a browser's WebAssembly. It links the
// packages of fmp-edge, so that uploads are equal byte for byte, but for network and files: these
// are the page's (pipeline/page), which calls the program in a Web Worker.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fmp/cmd/buildinfo"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/moments"
	"fmp/pipeline/privacy"
)

// session is the state of a page. Its Web Worker calls one method at a time, so that nothing is
// locked. A method that needs a key, a round or a model refuses without it. It lasts for as long as
// the page, and keeps its key in memory alone. Fields are nil until their method has been called.
type session struct {
	vectors bool // models run by vector kernels
	key     *identity.Key
	round   *wire.Description
	client  *client.Client
	trusted bool // the client's extractor may run on the images
	// approved are the lines that the page keeps of extractors, for scope: files or a server's key.
	approved   client.Memory
	scope      string
	classifier *classify.Classifier
}

// request is a call of a method. read is nil where the page lends no files.
type request struct {
	params []byte // JSON
	// data are bytes beside the parameters, such as a model or a reply of the server.
	data     []byte
	read     func(path string) ([]byte, error) // returns a file of the page's
	progress func(done, all int)               // is called after each image
}

// method answers a call with a value sent as JSON, and bytes or nil. Bytes that it returns are
// copied to the page.
type method func(*session, *request) (any, []byte, error)

// methods are those that the page calls, by their names there. Those that do not stand in inRound
// check themselves for the models that they need.
var methods = map[string]method{
	"version":    (*session).version,
	"newKey":     with((*session).newKey),
	"readKey":    (*session).readKey,
	"round":      with((*session).describe),
	"open":       with((*session).open),
	"approve":    (*session).approve,
	"list":       with((*session).list),
	"compress":   with((*session).compress),
	"explain":    (*session).explain,
	"stillOpen":  inRound((*session).stillOpen),
	"sign":       inRound((*session).sign),
	"receipt":    inRound(with((*session).receipt)),
	"classifier": (*session).openClassifier,
	"predict":    with((*session).predict),
	"evaluate":   with((*session).evaluate),
	"ask":        inRound((*session).ask),
	"withdraw":   inRound((*session).withdraw),
	"withdrawn":  inRound((*session).withdrawn),
}

// call answers the call of a method. A name that is unknown is a fault of the page.
func (s *session) call(name string, q *request) (any, []byte, error) {
	m, ok := methods[name]
	if !ok {
		return nil, nil, fmt.Errorf("no method %q", name)
	}
	return m(s, q)
}

// version says of which sources the program is, and whether it computes in vectors here.
func (s *session) version(*request) (any, []byte, error) {
	return map[string]any{"build": buildinfo.Read(), "vectors": s.vectors}, nil, nil
}

// with reads the parameters of a request for a method. Unknown fields are passed over, as page and
// program are of one build.
func with[P any](do func(*session, *request, P) (any, []byte, error)) method {
	return func(s *session, q *request) (any, []byte, error) {
		var p P
		if err := json.Unmarshal(q.params, &p); err != nil {
			return nil, nil, fmt.Errorf("parameters: %w", err)
		}
		return do(s, q, p)
	}
}

// inRound refuses a call before there are a key and a round. The server's answer, a round, comes by
// describe.
func inRound(do method) method {
	return func(s *session, q *request) (any, []byte, error) {
		if s.key == nil || s.round == nil {
			return nil, nil, errors.New("a key and a round are needed")
		}
		return do(s, q)
	}
}

// keyInfo is a page's description of a key. It holds nothing secret.
type keyInfo struct {
	Name string `json:"name"`
	Line string `json:"line"` // of the roster
}

// newKey makes a key, and returns the contents of its file. The session has it in memory alone: the
// caller keeps the secret. The secret is the key's file, as fmp-edge key writes it.
func (s *session) newKey(_ *request, p struct{ Name string }) (any, []byte, error) {
	k, err := identity.New(p.Name)
	if err != nil {
		return nil, nil, err
	}
	s.key = k
	secret, err := k.Secret()
	return keyInfo{k.Name, k.Line()}, secret, err
}

// readKey reads a key from the contents of its file. Its line for the roster is the one of when it
// was made. A second key takes the place of the first.
func (s *session) readKey(q *request) (any, []byte, error) {
	k, err := identity.Parse(q.data)
	if err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	s.key = k
	return keyInfo{k.Name, k.Line()}, nil, nil
}

// describe reads the list of a server's rounds, which was asked for Age seconds ago. A private
// round that may end before the reply, a number of seconds from now, is refused; 0 is no reply. The
// round is kept only where all of it can be used by a page.
func (s *session) describe(q *request, p struct{ Reply, Age float64 }) (any, []byte, error) {
	asked := time.Now().Add(-time.Duration(p.Age * float64(time.Second)))
	d, err := wire.One(q.data, asked)
	if err != nil {
		return nil, nil, err
	}
	if d.GraphBytes > wire.MaxGraph {
		return nil, nil, fmt.Errorf("the client graph has %d bytes; allowed are %d",
			d.GraphBytes, wire.MaxGraph)
	}
	if d.Privacy != nil && d.Privacy.Noise == privacy.TwoServers {
		return nil, nil, fmt.Errorf("round %d is private with two servers, and a page speaks to "+
			"the one that it came from alone: take part with fmp-edge join --helper; nothing was "+
			"read and nothing sent", d.Round)
	}
	if p.Reply > 0 {
		if err := inTime(d, p.Reply); err != nil {
			return nil, nil, err
		}
	}
	s.round = d
	return struct {
		*wire.Description
		Round     uint64 `json:"round,string"` // JavaScript's numbers round it
		GraphPath string `json:"graph_path"`
	}{d, d.Round, wire.GraphPath(d.Round)}, nil, nil
}

// inTime refuses a private round that may end before the reply, a number of seconds from now. This
// moment is the server's clock and the age of its description ([wire.Description.TooLate]). A plain
// round is never refused here.
func inTime(d *wire.Description, reply float64) error {
	if !d.TooLate(time.Duration(reply * float64(time.Second))) {
		return nil
	}
	return fmt.Errorf("round %d takes uploads until %s, and the upload would be there %v seconds "+
		"from now: give a shorter time; nothing was read and nothing sent", d.Round,
		d.Deadline.Format(time.RFC3339), reply)
}

// stillOpen refuses a private round that may have ended since the page asked for it: a browser may
// freeze a page, or its machine sleep, until after the deadline.
func (s *session) stillOpen(*request) (any, []byte, error) {
	if !s.round.TooLate(0) {
		return nil, nil, nil
	}
	return nil, nil, fmt.Errorf("round %d took uploads until %s, which came before the upload was "+
		"made: nothing was kept and nothing spent", s.round.Round,
		s.round.Deadline.Format(time.RFC3339))
}

// graphInfo is a page's description of a client graph that it took apart. Sizes are of the images
// after resizing, in pixels.
type graphInfo struct {
	Digest   string   `json:"digest"`
	Classes  []string `json:"classes"`
	Height   int      `json:"height"`
	Width    int      `json:"width"`
	Channels int      `json:"channels"`
	// Features are the numbers of a point, and Most bounds an upload in float32.
	Features  int    `json:"features"`
	Most      int    `json:"most_bytes"`
	Extractor string `json:"extractor"`
	// the extractor is known to this program, under this name
	Shipped  string `json:"shipped,omitempty"`
	Nodes    int    `json:"nodes"`
	Bytes    int64  `json:"bytes"`  // of its parameters
	Pixels   int    `json:"pixels"` // numbers of an image
	Can      string `json:"can"`    // what a network of so many numbers can do
	Numbers  int    `json:"numbers"`
	Refused  string `json:"refused,omitempty"`  // why it may not run until it is approved
	Approved string `json:"approved,omitempty"` // lines of the approved extractors, to be kept
}

// open takes a client graph apart, and says whether its extractor may run. Digest is that of the
// round, "" for none, and Approved the lines that the page has kept. The digest is compared before
// the bytes are parsed.
func (s *session) open(q *request, p struct{ Digest, Approved string }) (any, []byte, error) {
	s.client, s.trusted = nil, false
	if sum := models.DigestBytes(q.data); p.Digest != "" && sum != p.Digest {
		return nil, nil, fmt.Errorf("the client graph that came has sha256 %s; the round says "+
			"%s: it is not used", sum, p.Digest)
	}
	c, err := client.Parse(q.data, 1)
	if err != nil {
		return nil, nil, fmt.Errorf("client graph: %w", err)
	}
	if err := s.admit(c); err != nil {
		return nil, nil, err
	}
	s.client, s.scope, s.approved = c, client.Files, client.Memory{Lines: p.Approved}
	if s.round != nil {
		s.scope = client.ServerScope(s.round.ServerKey)
	}
	return s.judge()
}

// judge says whether the extractor of the client graph may run. An unknown extractor is no error
// here: the page asks its visitor about it. It keeps the answer in trusted, which compress asks.
func (s *session) judge() (any, []byte, error) {
	f, a := s.client.Manifest, s.client.Parsed
	err := s.client.Trust(&s.approved, s.scope)
	s.trusted = err == nil
	i := graphInfo{Digest: f.Digest, Classes: classify.Names(f),
		Height: s.client.Fit.H, Width: s.client.Fit.W, Channels: s.client.Fit.Ch,
		Features: f.Dx, Most: most(f), Extractor: a.Extractor, Shipped: client.Known(a.Extractor),
		Nodes: a.Nodes, Numbers: a.Numbers, Bytes: a.Bytes, Pixels: a.Pixels, Can: s.client.Can(),
		Approved: s.approved.Lines}
	var unknown *client.UnknownError
	switch {
	case errors.As(err, &unknown):
		i.Refused = unknown.Error()
	case err != nil:
		return nil, nil, err
	}
	return i, nil, nil
}

// most returns the bytes of the largest upload that a client graph makes (float32). Each of S
// points has its numbers, a share of each class, and a mass. A number has four bytes. A graph of
// moments states its bound.
func most(f models.Manifest) int {
	if f.Bytes > 0 {
		return f.Bytes
	}
	return f.S * 4 * (f.PointWidth() + f.C + 1)
}

// approve lets the extractor of the client graph run: its owner said so. The lines to keep are in
// the reply, as the page stores them.
func (s *session) approve(*request) (any, []byte, error) {
	if s.client == nil {
		return nil, nil, errors.New("no client graph is open")
	}
	if err := s.approved.Add(s.client.Parsed.Extractor, s.scope); err != nil {
		return nil, nil, err
	}
	return s.judge()
}

// source returns the images of a request by the rules of fmp-edge: folders are classes. Files are
// read when an image is asked for. The images of an upload are client.MaxItems at most.
func (s *session) source(q *request, paths []string) (imagefile.Source, imagefile.LeftOut, error) {
	if s.client == nil {
		return nil, imagefile.LeftOut{}, errors.New("no client graph is open")
	}
	return imagefile.OpenFiles(paths, q.read,
		imagefile.Options{Fit: s.client.Fit, Classes: s.client.Classes(),
			MaxItems: client.MaxItems})
}

// list says which of a page's files are images, and of which class, before any is read. Paths are
// those of the page.
func (s *session) list(q *request, p struct{ Paths []string }) (any, []byte, error) {
	src, others, err := s.source(q, p.Paths)
	if err != nil {
		return nil, nil, err
	}
	type item struct {
		Path  string `json:"path"`
		Label int    `json:"label"`
	}
	var items []item
	for _, i := range imagefile.Items(src) {
		items = append(items, item{i.Name, i.Label})
	}
	return map[string]any{"items": items, "others": others}, nil, nil
}

// counted tells how many images were read. Of an image that cannot be read it tells as well. tell
// is called once for each image, in order.
type counted struct {
	imagefile.Source
	done int
	tell func(done, all int)
}

func (c *counted) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	i, err := c.Source.Next(ctx, dst)
	c.done++
	c.tell(c.done, c.Len())
	return i, err
}

// compressing is how an upload is made. Round is a text in JSON, as JavaScript's numbers round it.
// An empty Precision is the round's first, or float32.
type compressing struct {
	Paths     []string
	Name      string
	Round     uint64 `json:",string"`
	Precision federate.Precision
	AtLeast   int
	Skip      bool
	spending
}

// compress makes the upload of a page's images. It refuses an extractor that is not approved before
// the first image is read. The account is of the bytes that are returned. Upload and account are
// made before any of it is sent.
func (s *session) compress(q *request, p compressing) (any, []byte, error) {
	if err := identity.CheckName(p.Name); err != nil {
		return nil, nil, err
	}
	src, _, err := s.source(q, p.Paths)
	if err != nil {
		return nil, nil, err
	}
	if !s.trusted {
		return nil, nil, errors.New("the extractor is not approved: nothing was read")
	}
	images := &counted{Source: src, tell: q.progress}
	if err := s.admit(s.client); err != nil {
		return nil, nil, err
	}
	if s.client.Private() {
		return s.release(images, p.Name, p.spending)
	}
	u, left, err := s.client.Upload(context.Background(), images,
		client.Options{Skip: p.Skip, AtLeast: max(1, p.AtLeast)}, p.Name)
	if err != nil {
		return nil, nil, err
	}
	u.Round, u.Precision = p.Round, p.Precision
	if u.Precision == "" {
		u.Precision = federate.Single
		if s.round != nil && len(s.round.Precisions) > 0 {
			u.Precision = federate.Precision(s.round.Precisions[0])
		}
	}
	data, err := u.EncodeWithin(s.client.Manifest.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if d := s.round; d != nil && (u.N > d.MaxPoints || len(data) > d.MaxBytes) {
		return nil, nil, fmt.Errorf("%d images in %d bytes; the round allows %d in %d: give fewer",
			u.N, len(data), d.MaxPoints, d.MaxBytes)
	}
	l, err := s.leaving(data)
	if err != nil {
		return nil, nil, err
	}
	l.add(left, s.client)
	return l, data, nil
}

// explain describes an upload that a page has kept, and checks that it belongs to the round and the
// key. It is asked again before an upload is signed.
func (s *session) explain(q *request) (any, []byte, error) {
	l, err := s.leaving(q.data)
	if err != nil {
		return nil, nil, err
	}
	if d := s.round; d != nil &&
		((l.Budget == nil) != (d.Privacy == nil) || l.Budget != nil && *l.Budget != *d.Privacy) {
		return nil, nil, fmt.Errorf("the upload's privacy is %v; that of round %d is %v", l.Budget,
			d.Round, d.Privacy)
	}
	if d := s.round; d != nil && (l.Round != d.Round || l.Model != d.Graph) {
		return nil, nil, fmt.Errorf("the upload is for round %d with client graph %s; the "+
			"server's are %d and %s", l.Round, l.Model, d.Round, d.Graph)
	}
	if s.key != nil && l.Client != s.key.Name {
		return nil, nil, fmt.Errorf("the upload is of client %q; the key is %q's",
			l.Client, s.key.Name)
	}
	return l, nil, nil
}

// leaving is the content of an upload that leaves a page, read from its bytes. The page shows it to
// its visitor before sending.
type leaving struct {
	Bytes     int                `json:"bytes"`
	Digest    string             `json:"digest"`
	Client    string             `json:"client"`
	Round     uint64             `json:"round,string"`
	Model     string             `json:"model"`
	Precision federate.Precision `json:"precision"`
	Images    int                `json:"images"`
	Features  int                `json:"features"` // numbers of a point
	Points    []row              `json:"points"`
	Singles   []row              `json:"singles,omitempty"` // of single images, for calibration
	Scatter   int                `json:"scatter,omitempty"` // numbers of the scatter within classes
	Curve     int                `json:"curve,omitempty"`   // numbers of the curve
	Left      []string           `json:"left,omitempty"`
	Zeros     int                `json:"zeros,omitempty"`
	Copies    int                `json:"copies,omitempty"`

	// of a private upload; its points are sums and its images counts, with noise
	Budget  *privacy.Budget `json:"budget,omitempty"`
	Promise string          `json:"promise,omitempty"`
	Spent   *spent          `json:"spent,omitempty"` // where it was made just now
}

// add notes the photographs left out, the number of copies among them, and the number of those of
// which the network made no finite numbers. The notes are the page's own, and no part of the
// upload.
func (l *leaving) add(left []error, c *client.Client) {
	for _, e := range left {
		l.Left = append(l.Left, e.Error())
	}
	l.Copies, l.Zeros = c.Copies, c.Zeros
}

// row is a point of an upload. Images is a mass, and of a private upload a noisy count.
type row struct {
	Class  int     `json:"class"`
	Images float32 `json:"images"`
	// Shades are the numbers of the point: 128 is zero, 1 and 255 the largest of all points.
	Shades []byte `json:"shades"`
}

// leaving decodes an upload, so that the account is of the bytes that leave. Points come with their
// class, the one of the largest share, and with their mass. Nothing here is taken from the session:
// an upload that was kept is described alike.
func (s *session) leaving(data []byte) (*leaving, error) {
	if federate.IsRelease(data) {
		u, err := federate.DecodeRelease(data, federate.Expect{Unsalted: true})
		if err != nil {
			return nil, err
		}
		if u.Share != nil {
			return nil, errors.New("the upload is one of two shares, which a page does not send")
		}
		return releasing(u, data), nil
	}
	u, err := federate.Decode(data, federate.Expect{})
	if err != nil {
		return nil, err
	}
	p := u.Points
	l := &leaving{Bytes: len(data), Digest: models.DigestBytes(data), Client: u.Client,
		Round: u.Round, Model: u.Model, Precision: u.Precision, Images: u.N, Features: p.Dx}
	var points [][]float32
	for i := range p.N {
		points = append(points, p.Features(i))
		l.Points = append(l.Points, row{Class: largest(p.Row(i)[p.Dx:]), Images: p.W[i]})
	}
	if w := u.Within; w != nil {
		for i, y := range w.Labels {
			points = append(points, w.Calibration[i*w.K:(i+1)*w.K])
			l.Singles = append(l.Singles, row{Class: y, Images: 1})
		}
		l.Images, l.Scatter = l.Images+len(w.Labels), len(w.Data)
	}
	if u.Curve != nil {
		l.Curve = moments.Temperatures
	}
	shades := shaded(points)
	for i := range shades {
		if i < len(l.Points) {
			l.Points[i].Shades = shades[i]
		} else {
			l.Singles[i-len(l.Points)].Shades = shades[i]
		}
	}
	return l, nil
}

// shaded returns rows of numbers as shades, in units of the largest of them. With m for the largest
// absolute value, v is 128 + 127 v/m, cut to an integer. Rows of zeros are all 128. The cost is two
// passes over the numbers.
func shaded(rows [][]float32) [][]byte {
	most := float32(0)
	for _, r := range rows {
		for _, v := range r {
			most = max(most, v, -v)
		}
	}
	out := make([][]byte, len(rows))
	for i, r := range rows {
		out[i] = make([]byte, len(r))
		for j, v := range r {
			out[i][j] = 128
			if most > 0 {
				// Negative numbers wrap around, down to 1.
				out[i][j] += uint8(int(127 * v / most))
			}
		}
	}
	return out
}

// largest is the place of the largest number, the first of equals: of shares of classes, the class.
func largest(v []float32) (at int) {
	for i := range v {
		if v[i] > v[at] {
			at = i
		}
	}
	return at
}

// sign returns the request that sends an upload: its path and headers. The headers hold the
// client's signature of the digest, and not the upload.
func (s *session) sign(q *request) (any, []byte, error) {
	if _, _, err := s.explain(q); err != nil {
		return nil, nil, err
	}
	if federate.IsRelease(q.data) {
		// The salt alone is left to check.
		if _, err := federate.DecodeRelease(q.data, federate.Expect{}); err != nil {
			return nil, nil, fmt.Errorf("the upload was made by an earlier program, without "+
				"the salt that the server asks for now, and is not sent; take part in the next "+
				"round, as another one for this round would spend its budget again: %w", err)
		}
	}
	headers, digest := s.round.Headers(s.key, q.data)
	return map[string]any{"path": wire.UploadPath(s.round.Round, s.key.Name), "headers": headers,
		"digest": digest}, nil, nil
}

// receipt verifies the reply to an upload of a digest, and returns the receipt and its file. Only a
// receipt that the round's key signed, of this client and digest, is given on.
func (s *session) receipt(q *request, p struct{ Digest string }) (any, []byte, error) {
	r := &wire.Receipt{}
	if err := wire.Unmarshal(q.data, r); err != nil {
		return nil, nil, err
	}
	if err := s.round.Accept(r, s.key.Name, p.Digest); err != nil {
		return nil, nil, err
	}
	file, err := json.MarshalIndent(r, "", "  ")
	return r, append(file, '\n'), err
}

// openClassifier opens a classifier. A later one takes its place. It needs neither key nor round.
func (s *session) openClassifier(q *request) (any, []byte, error) {
	c, err := classify.ParseImages(q.data, 1)
	if err != nil {
		return nil, nil, err
	}
	// The page asks for one image a call.
	c.Batch, s.classifier = 1, c
	f := c.Manifest
	return map[string]any{"digest": f.Digest, "classes": classify.Names(f), "height": c.Fit.H,
		"width": c.Fit.W, "sets": c.Has(models.SetOutput), "intervals": c.Has("low")}, nil, nil
}

// predicted is the prediction of one image. Slices are copies: the classifier uses its own again.
type predicted struct {
	Probabilities []float32 `json:"probabilities"`
	// Low and High are the ends of the credible intervals, and Set marks the classes of the
	// prediction set. Each is by class, and left out where the classifier has none.
	Low  []float32 `json:"low,omitempty"`
	High []float32 `json:"high,omitempty"`
	Set  []bool    `json:"set,omitempty"`
	// Disagreement is in nats.
	Disagreement float32 `json:"mutual_information"`
}

// predict classifies one image, the data of the request. Errors have the name of its file. Its name
// is made one without folders and leading dots, as folders would be classes and hidden files are
// left out.
func (s *session) predict(q *request, p struct{ Name string }) (any, []byte, error) {
	if s.classifier == nil {
		return nil, nil, errors.New("no classifier is open")
	}
	read := func(string) ([]byte, error) { return q.data, nil }
	name := strings.TrimLeft(strings.ReplaceAll(p.Name, "/", "_"), ".")
	if !imagefile.IsImage(name) {
		name += ".jpg" // formats are told by content
	}
	src, _, err := imagefile.OpenFiles([]string{name}, read,
		imagefile.Options{Fit: s.classifier.Fit, MaxItems: 1, Optional: true,
			Classes: imagefile.Classes{N: s.classifier.Manifest.C}})
	if err != nil {
		return nil, nil, err
	}
	var out predicted
	bad, err := s.classifier.Images(context.Background(), src, false,
		func(ps []classify.Prediction) error {
			p := ps[0]
			out = predicted{slices.Clone(p.Probabilities), slices.Clone(p.Low),
				slices.Clone(p.High), slices.Clone(p.Set), p.MutualInformation}
			return nil
		})
	return out, nil, errors.Join(append(bad, err)...)
}
