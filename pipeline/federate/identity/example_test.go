package identity_test

import (
	"fmt"

	"fmp/pipeline/federate/identity"
)

// A client signs the digest of its upload; the server verifies the signature by the client's line
// of the roster.
func ExampleRoster_Verify() {
	key, err := identity.New("shop-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	roster, err := identity.ParseRoster([]byte(key.Line() + "\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	s := identity.Statement{Purpose: identity.Upload, Round: 3, Client: "shop-17", Graph: "9c1e",
		Content: "5f70"}
	signature := key.Sign(s)
	fmt.Println("as signed:", roster.Verify(s, signature))
	s.Round = 4
	fmt.Println("for another round:", roster.Verify(s, signature))
	// Output:
	// as signed: true
	// for another round: false
}
