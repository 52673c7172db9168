# The environment is .venv, made on first use; a stamp in it tells when settings.ini has changed since.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PKG := settings.ini setup.py
BIN := .venv/bin

.PHONY: help demo test docs bench models export clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z]+:.*## / {printf "make %-8s%s\n", $$1, $$2}' Makefile

# Through the environment, and not expanded, a sentence arrives as it was typed: quotes, apostrophes and dollars are nobody's syntax.
TEXT ?= He opened the because and walked into the room.
override TEXT := $(value TEXT)
export TEXT

demo: .venv/.installed ## pre-train the tiny model on the embedded sample for five minutes; TEXT="..." is scored at the end
	$(BIN)/electra_pretrain --preset tiny --minutes 5 --out runs/demo
	@echo; echo "What five minutes of training make of it:"
	@$(BIN)/electra_score --model runs/demo --show="$$TEXT"
	@echo; $(BIN)/python -W ignore tools/odd_words.py runs/demo
	@test ! -d electra_nbdev/models/electra-baby-en || { echo; echo "What the model makes of it that comes with the package:"; $(BIN)/electra_score --show="$$TEXT"; }

test: .venv/.installed-dev ## run every check that CI runs; STAGES="export pages" picks some
	@$(BIN)/python tools/check.py $(STAGES)

QUARTO := 1.10

nbs/try/models: .venv/.installed-dev
	$(BIN)/electra_convert --src electra-check --onnx --int8 --out $@/check
	$(BIN)/electra_convert --src tiny --onnx --int8 --out $@/electra
	$(BIN)/electra_convert --src electric --onnx --int8 --out $@/electric
	@rm -f $@/electric/towers.onnx $@/electra/discriminator.onnx

docs: .venv/.installed-dev nbs/try/models ## build the site in _docs (needs quarto 1.10 or later)
	@command -v quarto >/dev/null || { echo "quarto is not on the PATH: install $(QUARTO) or later from https://quarto.org/docs/get-started/" >&2; exit 2; }
	@printf '$(QUARTO)\n%s\n' "$$(quarto --version)" | sort -VC || { echo "quarto $$(quarto --version) cannot build nbdev's sites (quarto-cli issue 14669): install $(QUARTO) or later from https://quarto.org/docs/get-started/" >&2; exit 2; }
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=tools nbdev-docs

bench: .venv/.installed-dev ## measure speed and memory; adds a run to benchmarks/results
	@$(BIN)/python benchmarks/run.py

models: .venv/.installed-dev ## train the models of the package again; TEXT_DIR=folder of English text
	@$(BIN)/python tools/models.py --text "$(TEXT_DIR)"

export: .venv/.installed-dev ## clean the notebooks and write the modules from them
	$(BIN)/nbdev-clean
	$(BIN)/nbdev-export

clean: ## remove what was built; .venv and runs stay
	rm -rf _proc _docs build dist *.egg-info .pytest_cache .hypothesis nbs/nbdev.yml nbs/sidebar.yml nbs/try/models
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

define install
@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: install it, or name it, as in make demo PYTHON=/path/to/python" >&2; exit 2; }
@test -x $(BIN)/pip || { echo "Making .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; }
@echo "Installing electra_nbdev$(1) in .venv; the first time this takes a few minutes, torch being large"
@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.$(1)'
@touch $@
endef

.venv/.installed: $(PKG)
	$(call install)

.venv/.installed-dev: $(PKG)
	$(call install,[dev])
	@touch .venv/.installed
