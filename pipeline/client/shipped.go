package client

// Shipped names the extractors that come with this program by their digests (docs/formats.md). Who runs this program trusts them as much as
// it.
var Shipped = map[string]string{
	"ce6e7d2426f12ed41c31fa5db7109d7f4ea3e79101542fe9e469349010003db9": "digits",
	"32221237ee747fff3267584d8c9a4566d3f2e2702208298a5437d81509443ea1": "digits-color",
	"8e8baadc0f44e8ce5fd583fbf19817870f8dc19aaba84ff0a05463ce41037100": "mnist",
	"f37c68e26b44db875e0aca9e01952590375b47099e77ba9f012695d520aa7972": "cifar10",
	"72b2ac7ed6fed8f0b00eeed5584b7b95c6bc1e54633d6fcee93c01404dd670ad": "cifar100",
}
