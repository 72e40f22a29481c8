#!/bin/sh
# The search over what the letter leaves unsaid, its objective |theta_MP - theta_FMP| by s, n and steps of meta-training, and the paper's
# method by s: run from the root of the repository with bin/fmp built. Models and runs go to the folder letter, which is ignored; figures
# go to docs/results/letter. Run again, it goes on where it was stopped. About twenty minutes of one processor.
set -e
mkdir -p letter
kept=docs/results/letter
# fixed NAME STEPS: a predictor whose training keeps the names of the classes.
fixed() {
	test -f "letter/$1.onnx" || bin/fmp train predictor --dataset cifar10 --l2 5 --noises 4 --rate 2e-3 --steps "$2" --latent 16 \
		--set tasks.labels=fixed -o "letter/$1.onnx"
}
fixed fixed-25 25
fixed fixed-35 35
fixed fixed-50 50
fixed fixed-100 100
fixed fixed 300
for grid in search fixed partly covariance; do
	bin/fmp grid "$kept/$grid.yaml" --out "letter/$grid"
	bin/fmp results export "letter/$grid"/* -o "$kept/$grid.csv"
done
# embedding NAME FLAGS: 200 steps towards the heads that the data themselves give.
embedding() {
	name=$1
	shift
	test -f "letter/$name.onnx" || bin/fmp train embedding --dataset cifar10 --l2 5 --steps 200 --validate-every 50 "$@" -o "letter/$name.onnx"
	cp "letter/$name.onnx.jsonl" "$kept/$name.jsonl"
}
for s in 10 20 40 80; do
	embedding "s-$s" --set embedding.size=$s --set federation.points=40
done
for n in 10 20 80; do
	embedding "n-$n" --set embedding.size=10 --set federation.points=$n
done
bin/fmp grid "$kept/sizes.yaml" --out letter/sizes
bin/fmp results export letter/sizes/* -o "$kept/sizes.csv"
