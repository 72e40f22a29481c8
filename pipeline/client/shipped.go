package client

// Shipped names the extractors that come with this program by their digests (docs/formats.md). Who runs this program trusts them as much as
// it.
var Shipped = map[string]string{
	"4cbbee2d614ba6b70734b378114219912ce8dd7a6874e017d66342d3e6071530": "digits",
	"958655cd2133d4b7ad34de2f80961d88c072dc578ccf0197d5ad5501c1e93a61": "digits-color",
	"19d2b978408f65f55fb819dce2b137f21e40e3f36c6cc938c0a5a08907253add": "mnist",
	"64adbcef9e845d5ff4ec30843bc21cf7227845fb73193f6241fc61a1e66d2f93": "cifar10",
	"6aa223078b65f5d86dcbf7c73e7ef42bd8944919898d5cd82ef7fc59e163c9e6": "cifar100",
}
