package report

// Printed is a pair of figures from Table I of the letter (arXiv 2605.18554), homogeneous clients.
type Printed struct {
	ACC float64 `json:"acc"`
	ECE float64 `json:"ece"`
}

// The letter's CIFAR-100 task has 20 classes.
var letter = map[string]map[string]Printed{
	"mnist": {
		"LANN": {.9517, .0712}, "LBNN": {.9510, .0793}, "LMP": {.9643, .0683},
		"ANN": {.9724, .0515}, "BNN": {.9713, .0449}, "MP": {.9733, .0213},
		"CANN": {.9689, .0678}, "CBNN": {.9705, .0621}, "CFMP": {.9700, .0527}, "FMP": {.9705, .0406},
	},
	"cifar10": {
		"LANN": {.5743, .0845}, "LBNN": {.5595, .0820}, "LMP": {.6896, .1053},
		"ANN": {.7863, .0729}, "BNN": {.7836, .0593}, "MP": {.8057, .0342},
		"CANN": {.7406, .2130}, "CBNN": {.7357, .1606}, "CFMP": {.7740, .1422}, "FMP": {.7891, .0572},
	},
	"cifar100": {
		"LANN": {.5736, .1804}, "LBNN": {.5626, .1842}, "LMP": {.6625, .1990},
		"ANN": {.7030, .0503}, "BNN": {.7010, .0385}, "MP": {.7095, .0274},
		"CANN": {.6840, .3158}, "CBNN": {.6950, .2458}, "CFMP": {.6973, .2221}, "FMP": {.7032, .0423},
	},
}

func printed(dataset, method string) *Printed {
	if p, ok := letter[dataset][method]; ok {
		return &p
	}
	return nil
}
