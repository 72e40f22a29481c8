package merge

import (
	"encoding/json"
	"errors"
	"fmt"

	"fmp/models"
	"fmp/pipeline/federate/identity"
)

// MaxSignature is the maximum size of a part's signature.
const MaxSignature = 4 << 10

// ErrSignature is wrapped by errors of [Verify].
var ErrSignature = errors.New("part: it is not signed by a worker of the roster")

// signed is the signature of a part, beside it: parts of equal uploads have equal bytes.
type signed struct {
	Worker    string `json:"worker"`
	Signature []byte `json:"signature"`
}

// statement is signed by a worker. It binds the part's digest to worker and server, so that a
// signature serves no other server.
func statement(part []byte, worker, server string) identity.Statement {
	return identity.Statement{Purpose: identity.Merged, Server: server, Client: worker,
		Content: models.DigestBytes(part)}
}

// Sign returns a worker's signature of the bytes of a part, which name its round and client graph,
// for the server of a public key (base64) that asked for it; empty where none did.
func Sign(key *identity.Key, part []byte, server string) ([]byte, error) {
	return json.Marshal(signed{key.Name, key.Sign(statement(part, key.Name, server))})
}

// Verify returns an error unless signature is that of a part by a worker of the roster, for the
// server of this key.
func Verify(workers *identity.Roster, part, signature []byte, server string) error {
	var s signed
	if len(signature) == 0 {
		return fmt.Errorf("%w: there is no signature", ErrSignature)
	}
	if len(signature) > MaxSignature || json.Unmarshal(signature, &s) != nil {
		return fmt.Errorf("%w: the signature cannot be read", ErrSignature)
	}
	if !workers.Verify(statement(part, s.Worker, server), s.Signature) {
		return fmt.Errorf("%w: the signature in the name of %.128q is not valid for this part",
			ErrSignature, s.Worker)
	}
	return nil
}
