package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
)

// MaxWithdrawal is the maximum size of the record of a withdrawal.
const MaxWithdrawal = 1 << 20

// ErrWithdrawal is wrapped by errors of [VerifyWithdrawal].
var ErrWithdrawal = errors.New("withdrawal: the record is not signed by the key")

// Withdrawal is the record of uploads that were taken out of a round, signed by the round's server.
type Withdrawal struct {
	Round uint64 `json:"round"`
	Graph string `json:"graph"` // sha256 of the client graph
	// Withdrawn are the uploads, by client and sha256: several where a client's files differ.
	Withdrawn []models.OriginClient `json:"withdrawn"`
	// Classifier is the sha256 of the file that was made without them.
	Classifier string `json:"classifier"`
	// Holds are the published versions that still hold one of the uploads; Free those that hold
	// none; Unknown those of merged clients, whose names they do not list.
	Holds   []Version `json:"holds,omitempty"`
	Free    []Version `json:"free,omitempty"`
	Unknown []Version `json:"unknown,omitempty"`
	Time    time.Time `json:"time"`
	// Signer is the name of the key, and Signature that of all other fields.
	Signer    string `json:"signer"`
	Signature []byte `json:"signature,omitempty"`
}

// Version is a published classifier.
type Version struct {
	File   string   `json:"file"`
	SHA256 string   `json:"sha256"`
	Holds  []string `json:"clients,omitempty"` // the withdrawn clients that it still holds
}

// Add reads a published classifier and says whether it holds a withdrawn upload: one by its digest,
// or any of the client's in that round.
func (w *Withdrawal) Add(path string) error {
	_, f, err := models.Load(path)
	if err != nil {
		return fmt.Errorf("withdrawal: reading a published version: %w", err)
	}
	if f.Kind != models.KindClassifier {
		return fmt.Errorf("withdrawal: %s is %q by its manifest; published versions are "+
			"classifiers", path, f.Kind)
	}
	o, err := models.ReadOrigin(f)
	if err != nil {
		return fmt.Errorf("withdrawal: %s: %w", path, err)
	}
	v := Version{File: path, SHA256: f.Digest}
	// a corpus or an anchor acts, and is named by the command alone
	for _, gone := range w.Withdrawn {
		if strings.Contains(f.Command, "="+gone.Upload) && !slices.Contains(v.Holds, gone.Name) {
			v.Holds = append(v.Holds, gone.Name)
		}
	}
	merged := false
	for _, c := range o.Clients {
		merged = merged || strings.HasSuffix(c.Name, mergedClients)
		for _, gone := range w.Withdrawn {
			same := c.Name == gone.Name && o.Round == w.Round && o.Client == w.Graph
			if (c.Upload == gone.Upload || same) && !slices.Contains(v.Holds, gone.Name) {
				v.Holds = append(v.Holds, gone.Name)
			}
		}
	}
	switch {
	case len(v.Holds) > 0:
		w.Holds = append(w.Holds, v)
	case merged:
		w.Unknown = append(w.Unknown, v)
	default:
		w.Free = append(w.Free, v)
	}
	return nil
}

// Replaces returns an error where a file is the record of an upload that this one does not name:
// writing there would lose it. Where nothing is there, or another file, the writing tells.
func (w *Withdrawal) Replaces(path string) error {
	data, err := regularfile.ReadOutput(path, MaxWithdrawal)
	var old Withdrawal
	if err != nil || wire.Only(data, &old) != nil {
		return nil
	}
	for _, gone := range old.Withdrawn {
		if old.Round != w.Round || old.Graph != w.Graph || !slices.Contains(w.Withdrawn, gone) {
			return fmt.Errorf("withdrawal: %s: it is the record of client %q of round %d, which "+
				"would be lost: give another file", path, gone.Name, old.Round)
		}
	}
	return nil
}

// Sign signs the record and returns its file: JSON of MaxWithdrawal bytes at most, which the reader
// takes. It sets Signer and Signature.
func (w *Withdrawal) Sign(key *identity.Key) ([]byte, error) {
	w.Signer = key.Name
	w.Signature = key.Sign(w.statement())
	data, err := json.MarshalIndent(w, "", "  ")
	if err == nil && len(data) >= MaxWithdrawal {
		err = fmt.Errorf(
			"withdrawal: the record has %d bytes; want up to %d: name fewer published versions",
			len(data), MaxWithdrawal)
	}
	return append(data, '\n'), err
}

// statement is signed: the digest of the record without its signature.
func (w Withdrawal) statement() identity.Statement {
	w.Signature = nil
	return identity.Statement{Purpose: identity.Withdrawn, Round: w.Round,
		Client: w.Signer, Graph: w.Graph, Content: wire.Content(w)}
}

// IsWithdrawal reports whether JSON has the fields of such a record.
func IsWithdrawal(data []byte) bool {
	var some struct{ Withdrawn, Classifier json.RawMessage }
	return json.Unmarshal(data, &some) == nil && some.Withdrawn != nil && some.Classifier != nil
}

// VerifyWithdrawal reads a record that one of the keys of a roster signed. Fields that a record
// does not have are errors, as nobody signed them. A signature of another key wraps
// [ErrWithdrawal].
func VerifyWithdrawal(data []byte, signers *identity.Roster) (*Withdrawal, error) {
	var w Withdrawal
	if len(data) > MaxWithdrawal {
		return nil, fmt.Errorf("withdrawal: %d bytes; want up to %d", len(data), MaxWithdrawal)
	}
	if err := wire.Only(data, &w); err != nil {
		return nil, fmt.Errorf("withdrawal: not a record that fmp pool --record writes: %w", err)
	}
	if !signers.Verify(w.statement(), w.Signature) {
		return nil, fmt.Errorf("%w: the signature in the name of %.128q is not valid",
			ErrWithdrawal, w.Signer)
	}
	return &w, nil
}
