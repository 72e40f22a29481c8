// Package wire defines the messages between client and server over HTTP: a round's description,
// receipts and refusals. Package service writes them and package sender reads them; openapi.yaml of
// package service specifies them.
//
// It depends on the standard library and package privacy alone, as it is part of the program for
// small devices.
package wire

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fmp/onnx/printable"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/privacy"
)

const (
	// MaxJSON is the maximum size of a description, a receipt or a refusal.
	MaxJSON = 64 << 10
	// MaxGraph is the maximum size of a client graph: 256 MiB.
	MaxGraph = 256 << 20
	// Scheme is the scheme of the Authorization header: "Fmp-Ed25519 SIGNATURE", the signature in
	// base64.
	Scheme = "Fmp-Ed25519"
	// TypeUpload is the media type of an upload.
	TypeUpload = "application/vnd.fmp.upload"
	// TypeProblem is the media type of a refusal (RFC 9457).
	TypeProblem = "application/problem+json"
)

// Description is the description of a round that its clients read. It has no signature of its own:
// TLS vouches for it, but on loopback. The client graph is bound by its digest, and receipts by
// ServerKey.
type Description struct {
	Round uint64 `json:"round"`
	Title string `json:"title,omitempty"`
	// State is "open", "late" (past the deadline; uploads are still accepted) or "closed".
	State string `json:"state"`
	// Now and Deadline are by the server's clock, so that the client's clock need not be right.
	Now      time.Time `json:"now"`
	Deadline time.Time `json:"deadline"`
	// AcceptLate says that uploads count after the deadline too, however late, or until the one
	// sum that ends the round.
	AcceptLate bool `json:"accept_late,omitempty"`
	// Graph is the SHA-256 of the client graph, and GraphBytes its size.
	Graph      string `json:"graph"`
	GraphBytes int64  `json:"graph_bytes"`
	// GraphSignature is the signature of the client graph (OpenSSF Model Signing); nil if the round
	// has none.
	GraphSignature json.RawMessage `json:"graph_signature,omitempty"`
	// Classes are the names of the classes; empty if they are numbers.
	Classes []string `json:"classes,omitempty"`
	// Precisions are the element types that an upload may have, the preferred one first.
	Precisions []string `json:"precisions"`
	// MaxPoints is the maximum number of images behind an upload, MaxBytes the maximum size of its
	// message.
	MaxPoints int `json:"max_points"`
	MaxBytes  int `json:"max_bytes"`
	// Calibrate is the maximum number of calibration points of an upload that the round asks for; a
	// client sends those that its owner grants. 0 in private rounds.
	Calibrate int `json:"calibrate,omitempty"`
	// Replace says whether a client may replace its upload while the round is open.
	Replace bool `json:"replace"`
	// Honesty says whether clients are weighted by how well the others predict them, which requires
	// individual uploads without noise: false in private rounds.
	Honesty bool `json:"honesty"`
	// Withdrawal says whether a client may withdraw its upload, at any time: false where servers
	// add the noise, as the one sum that they open hides single uploads, and another without one of
	// them would reveal it.
	Withdrawal bool `json:"withdrawal"`
	// Privacy is the privacy budget of every upload of a private round; nil in other rounds.
	Privacy *privacy.Budget `json:"privacy,omitempty"`
	// Server is the role of this server in a private round with two servers, "leader" or "helper";
	// empty in other rounds.
	Server string `json:"server,omitempty"`
	// ServerKey verifies receipts: Ed25519, base64.
	ServerKey string `json:"server_key"`

	// asked is the moment before the request for the description was sent ([One]), by the clock
	// that stands still while some machines sleep, and by the one that can be set. Both are zero in
	// other descriptions.
	asked, askedWall time.Time
}

// maxCalibrate is the maximum number of calibration points of an upload, federate.MaxCalibration.
const maxCalibrate = 100

// States of a round.
const (
	Open   = "open"
	Late   = "late"
	Closed = "closed"
)

// Servers of a private round with two servers. A client sends a share to the helper, then one to
// the leader, which makes the classifier.
const (
	Leader = "leader"
	Helper = "helper"
)

// Check returns an error if a description cannot be used.
// It is for descriptions of servers that a client need not trust. Sizes are compared with the
// client's own bounds where they are used. Keys of 32 bytes have several texts in base64, by the
// bits at the end that no byte uses: one is allowed.
func (d *Description) Check() error {
	if b, err := hex.DecodeString(d.Graph); err != nil || len(b) != 32 {
		return fmt.Errorf("the round's description has the graph %.80q; want a sha256 "+
			"in hexadecimal", d.Graph)
	}
	// One key has one text, as clients keep it and sign for it.
	if b, err := base64.StdEncoding.DecodeString(d.ServerKey); err != nil ||
		len(b) != ed25519.PublicKeySize ||
		base64.StdEncoding.EncodeToString(b) != d.ServerKey {
		return errors.New("the round's description has no Ed25519 key of the server")
	}
	if d.GraphBytes < 1 || d.MaxBytes < 1 || d.Deadline.IsZero() || d.Now.IsZero() {
		return fmt.Errorf("the round's description has a graph of %d bytes, uploads of "+
			"%d, now %v and the deadline %v; want all four", d.GraphBytes, d.MaxBytes,
			d.Now, d.Deadline)
	}
	if d.Calibrate < 0 || d.Calibrate > maxCalibrate || d.Calibrate > 0 && d.Privacy != nil {
		return fmt.Errorf("the round's description asks for %d calibration points; want 0 "+
			"to %d, and 0 of a private round", d.Calibrate, maxCalibrate)
	}
	if d.Privacy != nil {
		if err := d.Privacy.Check(); err != nil {
			return fmt.Errorf("the round's description: %w", err)
		}
	}
	if hidden := d.Privacy != nil && d.Privacy.Noise != privacy.Local; hidden && d.Withdrawal {
		return fmt.Errorf("the round's description says that uploads can be withdrawn, "+
			"and its noise is %s, where they cannot", d.Privacy.Noise)
	}
	if two := d.Privacy != nil &&
		d.Privacy.Noise == privacy.TwoServers; two != (d.Server == Leader || d.Server == Helper) {
		return fmt.Errorf("the round's description says that its server is %.20q, with privacy "+
			"%v; want %s or %s where there are two, and nothing elsewhere", d.Server,
			d.Privacy, Leader, Helper)
	}
	return nil
}

// TooLate reports whether an open, private round may have ended after a time from this moment.
// Where one sum ends the round it may be made at the deadline. No budget is spent on an upload that
// comes too late. This moment is Now and the age of the description. A round that accepts late
// uploads and withdrawals is never too late: no one sum ends it.
func (d *Description) TooLate(after time.Duration) bool {
	return d.Privacy != nil && d.State != Late && d.State != Closed &&
		!(d.AcceptLate && d.Withdrawal) && d.Now.Add(d.age()).Add(after).After(d.Deadline)
}

// age is the time since the description was asked for, by the clock that says more. The server
// wrote Now at an unknown moment of it, so that no more time has passed since Now. Sleep stops the
// monotonic clock of some machines, and the other clock may be set back.
func (d *Description) age() time.Duration {
	if d.asked.IsZero() {
		return 0
	}
	return max(time.Since(d.asked), time.Since(d.askedWall))
}

// Receipt certifies that the server holds an upload, and since when. It is issued only once the
// upload is on disk.
type Receipt struct {
	Round  uint64 `json:"round"`
	Client string `json:"client"`
	// Graph is the digest of the round's client graph, and Upload that of the message (SHA-256,
	// hexadecimal), of Bytes bytes.
	Graph  string    `json:"graph"`
	Upload string    `json:"upload"`
	Bytes  int       `json:"bytes"`
	Time   time.Time `json:"time"`
	// Spent is the privacy budget that this client's data have spent in a private round; nil in
	// other rounds.
	Spent *privacy.Budget `json:"spent,omitempty"`
	// Server is the public key (base64) that verifies Signature (base64), which covers all of the
	// above but Bytes.
	Server    string `json:"server"`
	Signature string `json:"signature"`
}

// statement is that of a server's key about a receipt. Bytes is not in it, as the digest stands for
// the message. The budget is in words of a fixed order: a receipt of another budget has another
// text.
func (r *Receipt) statement() identity.Statement {
	s := identity.Statement{Purpose: identity.Receipt, Server: r.Server, Round: r.Round,
		Client: r.Client, Graph: r.Graph, Content: r.Upload, Time: r.Time.UnixNano()}
	if b := r.Spent; b != nil {
		s.Spent = fmt.Sprintf("epsilon=%v delta=%v unit=%s relation=%s noise=%s points=%d",
			b.Epsilon, b.Delta, b.Unit, b.Relation, b.Noise, b.Points)
	}
	return s
}

// Sign sets the server's key and signature. All other fields are set before: a later change voids
// the signature, but for Bytes.
func (r *Receipt) Sign(k *identity.Key) {
	r.Server = k.PublicText()
	r.Signature = base64.StdEncoding.EncodeToString(k.Sign(r.statement()))
}

// Verify returns an error unless the receipt is signed with the server's given key (base64).
func (r *Receipt) Verify(server string) error {
	key, err := base64.StdEncoding.DecodeString(server)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("the server's key is %.60q; want base64 of %d bytes", server,
			ed25519.PublicKeySize)
	}
	signature, err := base64.StdEncoding.DecodeString(r.Signature)
	// the statement has the time as nanoseconds, which times that are 584 years apart share
	far := !time.Unix(0, r.Time.UnixNano()).Equal(r.Time)
	if err != nil || far || r.Server != server || !identity.Verify(key, r.statement(), signature) {
		return fmt.Errorf("the receipt of %q for round %d is not signed by the server's key %s",
			r.Client, r.Round, server)
	}
	return nil
}

// ReadReceipt parses a receipt as a server wrote it, without other fields, and verifies its
// signature by the server's given key (base64). Its time is in UTC: the signature covers no time
// zone. Nor does it cover Bytes. Round, client and digest are the caller's to compare with its own.
func ReadReceipt(data []byte, server string) (*Receipt, error) {
	r := &Receipt{}
	if err := Only(data, r); err != nil {
		return nil, fmt.Errorf("not a receipt as a server writes it: %w", err)
	}
	if err := r.Verify(server); err != nil {
		return nil, err
	}
	r.Time = r.Time.UTC()
	return r, nil
}

// Only parses JSON that has the fields of a value and nothing else.
// A signature covers the fields that this program knows: others would be shown as if they were
// signed.
func Only(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind its end")
	}
	return nil
}

// Headers returns the headers of the request that sends an upload of a client to a round, and the
// upload's digest. Server, round, graph and client are signed too, so that the request is of no use
// elsewhere.
func (d *Description) Headers(key *identity.Key,
	upload []byte) (headers map[string]string, digest string) {
	return d.sending(identity.Upload, TypeUpload, key, upload)
}

// Report returns the headers of the request that sends a site's report of an evaluation. Its
// purpose differs from an upload's, so that neither passes for the other.
func (d *Description) Report(key *identity.Key, report []byte) map[string]string {
	headers, _ := d.sending(identity.Evaluated, "application/json", key, report)
	return headers
}

// sending returns the headers of a signed request with a body of a media type, and its digest.
// The digest is in Content-Digest (RFC 9530) too, so that the server verifies the signature before
// it reads the body.
func (d *Description) sending(purpose identity.Purpose, kind string, key *identity.Key,
	body []byte) (headers map[string]string, digest string) {
	sum := sha256.Sum256(body)
	digest = hex.EncodeToString(sum[:])
	return map[string]string{
		"Content-Type":   kind,
		"Content-Digest": "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
		"Authorization":  Authorization(key.Sign(d.statement(purpose, key, digest))),
	}, digest
}

// Ask returns the signature by which a client asks for its receipt. It states no content: a client
// may have lost its upload and still ask.
func (d *Description) Ask(key *identity.Key) []byte {
	return key.Sign(d.statement(identity.Ask, key, ""))
}

// statement returns the statement that a client signs for this round of this server.
func (d *Description) statement(purpose identity.Purpose, key *identity.Key,
	content string) identity.Statement {
	return identity.Statement{Purpose: purpose, Server: d.ServerKey, Round: d.Round,
		Client: key.Name, Graph: d.Graph, Content: content}
}

// Accept returns an error unless a receipt is the round's server's for an upload of a digest that a
// client sent. The budget must be the round's to the last digit. Fields are compared first, as
// their error says more than that of a signature.
func (d *Description) Accept(r *Receipt, client, digest string) error {
	if r.Round != d.Round || r.Client != client || r.Graph != d.Graph || r.Upload != digest {
		return fmt.Errorf("the receipt is for upload %.80q of %.128q in round %d with "+
			"client graph %.80q; sent was %q of %q in round %d with %q", r.Upload,
			r.Client, r.Round, r.Graph, digest, client, d.Round, d.Graph)
	}
	if (r.Spent == nil) != (d.Privacy == nil) || r.Spent != nil && *r.Spent != *d.Privacy {
		return fmt.Errorf("the receipt says that %v was spent; the round states %v",
			r.Spent, d.Privacy)
	}
	return r.Verify(d.ServerKey)
}

// One returns the description in a server's list of its rounds, which must have one, after checking
// it. asked is the moment before the request for the list was sent. The list has the one round that
// a server of this program serves. After an error of the check the description is returned too, and
// is not to be used.
func One(list []byte, asked time.Time) (*Description, error) {
	var of struct {
		Rounds []Description `json:"rounds"`
	}
	if err := Unmarshal(list, &of); err != nil {
		return nil, err
	}
	if len(of.Rounds) != 1 {
		return nil, fmt.Errorf("the server has %d rounds; want one", len(of.Rounds))
	}
	d := &of.Rounds[0]
	d.asked, d.askedWall = asked, asked.Round(0)
	return d, d.Check()
}

// Problem is a refusal (RFC 9457).
type Problem struct {
	// Code is the reason, for programs; Detail explains it to people.
	Code   string `json:"code"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s: %s (%s)", Printable(p.Title), Printable(p.Detail), Printable(p.Code))
}

// maxPrinted is the number of bytes of another machine's text that a message shows.
const maxPrinted = 1000

// Printable returns text of another machine as it may stand in one line of a terminal: without
// control characters, line ends among them, and cut. The cut is at a byte: half a character there
// becomes U+FFFD ([printable.Line]).
func Printable(s string) string {
	if len(s) > maxPrinted {
		s = s[:maxPrinted] + "…"
	}
	return printable.Line(s)
}

// Codes of refusals, with their HTTP status.
const (
	NoKey = "no-key" // 401: the request is not signed
	// 403: the signature is not that of the client named, for this round, graph and content
	WrongKey    = "wrong-key"
	NoToken     = "no-token"     // 401: only readers with the token may read this
	NoRound     = "no-round"     // 404
	NoReceipt   = "no-receipt"   // 404: the server holds no upload of this client
	NotYet      = "not-yet"      // 404: there is no classifier yet
	NoVersion   = "no-version"   // 404: no such version of the classifier
	OtherUpload = "other-upload" // 409: the server holds another upload of this client
	// 410: the client withdrew; nothing of it is taken in this round again
	Withdrawn    = "withdrawn"
	NoWithdrawal = "no-withdrawal" // 409: sums hide the uploads of this round
	Superseded   = "superseded"    // 410: the version holds an upload that was withdrawn
	// 409: the helper has no share of this client, or a different one
	NoShare = "no-share"
	// 409: the helper has released its share of the sum of other clients
	SumOpened    = "sum-opened"
	RoundClosed  = "round-closed"  // 410
	TooLarge     = "too-large"     // 413
	BadUpload    = "bad-upload"    // 422: refused and quarantined
	BadRequest   = "bad-request"   // 400
	Unavailable  = "unavailable"   // 503: retry after Retry-After
	NoSpace      = "no-space"      // 503: the disk of the server's state is full; likewise
	TooMany      = "too-many"      // 429: likewise
	TooSlow      = "too-slow"      // 408: less came than the round's bounds.rate
	WrongHost    = "wrong-host"    // 421: a server on loopback was asked by another name
	CrossSite    = "cross-site"    // 403: a page of another site asks
	ServerFailed = "server-failed" // 500
)

// RoundPath returns the path of a round's description.
func RoundPath(round uint64) string { return "/v1/rounds/" + strconv.FormatUint(round, 10) }

// GraphPath returns the path of a round's client graph.
func GraphPath(round uint64) string { return RoundPath(round) + "/graph" }

// UploadPath returns the path of a client's upload. A slash in a name is escaped, so that a name is
// one segment of the path.
func UploadPath(round uint64, client string) string {
	return RoundPath(round) + "/uploads/" + url.PathEscape(client)
}

// EvaluationPath returns the path of a site's report of an evaluation.
func EvaluationPath(round uint64, client string) string {
	return RoundPath(round) + "/evaluations/" + url.PathEscape(client)
}

// ReceiptPath returns the path of a client's receipt.
func ReceiptPath(round uint64, client string) string {
	return UploadPath(round, client) + "/receipt"
}

// Authorization returns the header Authorization of a request that a client signed.
func Authorization(signature []byte) string {
	return Scheme + " " + base64.StdEncoding.EncodeToString(signature)
}

// Signature returns the signature in a header Authorization; nil if there is none. Schemes have no
// case (RFC 9110, section 11.1). A signature of another length is none, so that a caller needs no
// further check.
func Signature(authorization string) []byte {
	scheme, text, _ := strings.Cut(authorization, " ")
	b, err := base64.StdEncoding.DecodeString(text)
	if !strings.EqualFold(scheme, Scheme) || err != nil || len(b) != ed25519.SignatureSize {
		return nil
	}
	return b
}

// Unmarshal decodes JSON of at most [MaxJSON] bytes. Unknown fields are passed over, so that a
// later server may add some. For signed JSON there is [Only].
func Unmarshal(data []byte, v any) error {
	if len(data) > MaxJSON {
		return fmt.Errorf("a reply of more than %d bytes", MaxJSON)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("a reply that is not the JSON it should be: %w", err)
	}
	return nil
}
