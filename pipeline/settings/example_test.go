package settings_test

import (
	"fmt"

	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// A command's settings are a struct whose tags state defaults and allowed values.
func ExampleCheck() {
	type config struct {
		Rounds int             `yaml:"rounds" json:"rounds" default:"20" allowed:"1..10000" doc:"rounds that are drawn"`
		Engine settings.Engine `yaml:"engine" json:"engine"`
	}
	c := option.Default[config]()
	fmt.Println(c.Rounds, c.Engine.Name, option.Keys[config]())
	c.Rounds = 0
	fmt.Println(option.Check(&c))
	// Output:
	// 20 auto [rounds engine.name engine.provider engine.threads engine.library]
	// [setting rounds is 0; allowed is 1 to 10000: pass --set rounds=N in that range]
}
