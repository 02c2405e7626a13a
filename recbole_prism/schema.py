"""Every setting with its type, range, meaning and the room that reads it. Defaults stand in `properties/`, once.

SCHEMA holds the keys this package adds and those of its listed models; RECBOLE_KEYS holds RecBole's own, with
RecBole's meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

# RecBole's names. Rank metrics follow from the rank of the target, list metrics from the stored top-20 items.
RANK_METRICS = ("Hit", "Recall", "NDCG", "MRR", "Precision", "MAP")
LIST_METRICS = ("ItemCoverage", "AveragePopularity", "ShannonEntropy", "GiniIndex", "TailPercentage")
SUPPORTED_METRICS = RANK_METRICS + LIST_METRICS
MOST = 1e6  # bound of numbers that have no natural one: above it 32-bit sums are no longer good for anything
MAX_LIST_LENGTH = 20  # items stored per row, hence the largest k of a list metric

_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True)
class Key:
    """What a value must be.

    Attributes:
        types: Accepted types. A whole number is accepted where a float is; True and False are not numbers.
        meaning: One sentence, for people.
        room: Module that reads it; "model" for a model's own settings.
        choices: The accepted values, if they can be listed; of a list, its elements, each at most once.
        low: Smallest value, of a list's elements too.
        high: Largest value, of a list's elements too.
        open_low: `low` itself is not accepted.
        open_high: `high` itself is not accepted.
        optional: `~` is accepted.
        of: Types of a list's elements, empty for any.
    """

    types: tuple[type, ...]
    meaning: str = ""
    room: str = "recbole"
    choices: tuple[Any, ...] = ()
    low: Optional[float] = None
    high: Optional[float] = None
    open_low: bool = False
    open_high: bool = False
    optional: bool = False
    of: tuple[type, ...] = ()

    def problem(self, value: Any) -> Optional[str]:
        """What was expected instead of `value`, or None if the value will do."""
        if value is None:
            return None if self.optional else self.expected()
        if self.choices:
            chosen = value if list in self.types else [value]
            if not (isinstance(chosen, list) and chosen and all(self._is_choice(element) for element in chosen)):
                return self.expected()
            return None if len(set(chosen)) == len(chosen) else self.expected()
        if not _is_a(value, self.types):
            return self.expected()
        elements = value if isinstance(value, list) else [value]
        if self.of and isinstance(value, list) and not (value and all(_is_a(element, self.of) for element in value)):
            return self.expected()
        if all(self._in_range(element) for element in elements if _is_a(element, (float,))):
            return None
        return self.expected()

    def expected(self) -> str:
        """The accepted values in words: "a number above 0"."""
        if self.choices:
            start = "a list of different values among " if list in self.types else "one of "
            words = start + ", ".join(str(choice) for choice in self.choices)
        else:
            words = " or ".join(_NAMES[t] for t in self.types)
            if self.of:
                words += " of " + " or ".join(_NAMES[t].split()[-1] + "s" for t in self.of)
            if self.low is not None:
                words += f" {'above' if self.open_low else 'from'} {self.low:g}{'' if self.open_low else ' up'}"
            if self.high is not None:
                words += (
                    f"{' and' if self.low is not None else ''} {'below' if self.open_high else 'at most'} {self.high:g}"
                )
        return words + (" or ~" if self.optional else "")

    def _is_choice(self, value: Any) -> bool:
        return any(type(value) is type(c) and value == c for c in self.choices)  # with the type, since True == 1

    def _in_range(self, number: float) -> bool:
        if self.low is not None and not (number > self.low if self.open_low else number >= self.low):
            return False  # also for NaN
        return self.high is None or (number < self.high if self.open_high else number <= self.high)


def infer(default: Any) -> Key:
    """The key of a setting that only its default describes (RecBole's model files, `config_defaults`)."""
    if default is None:
        return Key((bool, int, float, str, list, dict), optional=True)
    kind = next(t for t in (bool, int, float, str, list, dict) if isinstance(default, t))
    return Key((kind,))


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types) or (isinstance(value, int) and float in types)


def _flag(meaning: str, room: str) -> Key:
    return Key((bool,), meaning, room)


def _count(meaning: str, room: str, low: int = 1, high: Optional[int] = None, optional: bool = False) -> Key:
    return Key((int,), meaning, room, low=low, high=high, optional=optional)


def _positive(meaning: str = "", room: str = "recbole", high: float = MOST) -> Key:
    return Key((float,), meaning, room, low=0, open_low=True, high=high)


def _weight(meaning: str = "", room: str = "recbole", high: float = MOST) -> Key:
    return Key((float,), meaning, room, low=0, high=high)


def _probability(meaning: str, room: str) -> Key:
    return Key((float,), meaning, room, low=0, high=1, open_high=True)


def _choice(meaning: str, room: str, *choices: Any) -> Key:
    return Key((str,), meaning, room, choices=choices)


SCHEMA: Mapping[str, Key] = {
    # the package's own, in properties/overall.yaml
    "mask_history": _flag(
        "Remove the user's whole history from the candidates; decides what is printed and what stops.", "evaluation"
    ),
    "device": Key((str,), "auto, cpu, cuda or cuda:N; the environment is never written.", "config"),
    "n_threads": _count("Torch threads; ~ leaves them as they are.", "quick_start", high=1024, optional=True),
    "data_cache": _flag("Keep what was read in <data set>/cache/ and use it while it fits.", "data"),
    "fast_path": _flag("Work on valid tokens only; False keeps padded shapes (export, diagnosis).", "model"),
    "compile": _flag("torch.compile of the training loss; goes on without it where it fails.", "trainer"),
    "save_histories": _flag(
        "Store the histories in the run directory; diagnosis and serving need them.", "run_directory"
    ),
    "eval_memory_gb": _positive("Memory bound of one chunk of full ranking, in 10^9 bytes.", "evaluation"),
    # transformer backbone
    "n_layers": _count("Transformer (or GRU) layers.", "model"),
    "n_heads": _count("Attention heads.", "model"),
    "hidden_size": _count("Width of the hidden state.", "model"),
    "inner_size": _count("Width inside the feed-forward layer.", "model"),
    "hidden_dropout_prob": _probability("Dropout of embeddings and layer outputs.", "model"),
    "attn_dropout_prob": _probability("Dropout of attention probabilities.", "model"),
    "hidden_act": _choice("Activation of the feed-forward layer.", "model", "gelu", "relu", "swish", "tanh", "sigmoid"),
    "layer_norm_eps": _positive("Added to the variance in LayerNorm.", "model", high=1),
    "initializer_range": _positive("Standard deviation of the normal initialisation.", "model"),
    "loss_type": _choice("Training loss: cross-entropy over all items.", "model", "CE"),
    # PRISM
    "n_lenses": _count("Semantic groups, hence perspective lenses (K).", "model", low=2),
    "router_noise": _flag("Noise on the routing logits in training.", "model"),
    "boost_form": _choice("Relational boost.", "model", "scaled", "exponential", "exponential_group", "none"),
    "boost_norm": _choice("What the boost signal is divided by.", "model", "visible", "group", "max_length"),
    "boost_center": _flag("Centre the logits of a query before the boost signal is taken.", "model"),
    "lens_value": _choice(
        "Values of a lens: own projection, those of the layer below, or its hidden states.",
        "model",
        "own",
        "layer",
        "hidden",
    ),
    "lens_residual": _flag("Residual connection inside a lens.", "model"),
    "lens_scope": _choice("Keys visible to a lens: all, or its group's only.", "model", "all", "group"),
    "views": _choice(
        "Lenses used: all, the primary anchor's only, or all others.", "model", "both", "affinity", "contrast"
    ),
    "aux_weight": _weight("Weight of SPCL + CCL; at 0 both are absent.", "model"),
    "spcl": _flag("Sequence-level preference contrast.", "model"),
    "same_target": _flag("Partner: another training row with the same target; False: the row itself.", "model"),
    "partner_exclude": _choice(
        "What a partner may not share with the row: the row, or the same history too.", "data", "row", "prefix"
    ),
    "spm": _flag("Stochastic perspective masking of both views.", "model"),
    "spm_level": _choice("One draw of the mask per position or per sequence.", "model", "position", "sequence"),
    "perspective_dropout": Key(
        (float,), "Probability that a lens other than the primary is masked.", "model", low=0, high=1
    ),
    "spcl_anchor": _choice(
        "Anchor view shares the prediction's lens outputs, or takes a pass of its own.", "model", "shared", "fresh"
    ),
    "spcl_negatives": _choice("Negatives of the contrast.", "model", "both_views", "cross_view"),
    "cl_temperature": _positive("Temperature of the contrast.", "model"),
    "cl_similarity": _choice("Similarity of the contrast.", "model", "cosine", "dot"),
    "cl_filter_same": _flag("Rows with the same target are no negatives.", "model"),
    "ccl": _flag("Collaborative consistency of the lenses.", "model"),
    "ccl_reduction": _choice("Over the positions of a row.", "model", "sum", "mean"),
    "ccl_targets": _choice("Items compared: every row's target, or each once.", "model", "all", "unique"),
    "ccl_target_grad": _flag("The consistency loss also moves the item table.", "model"),
    # contrasts of sequence representations
    "cl_weight": _weight("Weight of the contrast; at 0 it is absent.", "model"),
    "contrast": _choice("What DuoRec contrasts.", "model", "us_x", "un", "su", "us", "none"),
    "dropout_cl_weight": _weight("Weight of the contrast of two dropout passes (un, us).", "model"),
    # intents
    "n_intents": _count("Intents (K): clusters of histories, or parallel interests of one history.", "model"),
    "cicl_weight": _weight("Weight of the contrast of histories that lead to the same item.", "model"),
    "ficl_weight": _weight("Weight of the contrast of histories with the centres of their clusters.", "model"),
    "reuse_anchor": _flag(
        "The prediction's encoding is contrasted too, instead of one with dropout of its own.", "model"
    ),
    "partner_sampling": _choice(
        "Partner: drawn anew each epoch, or always the last row that is allowed.", "data", "random", "last"
    ),
    "seqcl_weight": _weight("Weight of the contrast of two views of a history.", "model"),
    "intentcl_weight": _weight("Weight of the contrast of views with the centre of their history's cluster.", "model"),
    "cluster_weight": _weight("Weight of the clustering loss.", "model"),
    "seqcl_pooling": _choice(
        "What of a view is contrasted with the other view.", "model", "concat_valid", "concat_all", "last"
    ),
    "intent_pooling": _choice(
        "Representation that is clustered and contrasted with centres.", "model", "mean_valid", "mean_all", "last"
    ),
    "reuse_views": _flag("Both contrasts see the same encodings of the views.", "model"),
    "intent_fusion": _choice("How a centre joins the state of a position.", "model", "shift", "concat"),
    "center_init": _choice("Centres at the start: of a k-means, or random.", "model", "kmeans", "random"),
    "intent_agg": _choice(
        "Intents normalised at each position, or after summing over positions.", "model", "position", "sum"
    ),
    "intent_norm_eps": _positive("Epsilon of the LayerNorms of the intents.", "model", high=1),
    "mask_padding": _flag("Intents do not look at padding.", "model"),
    "estep_rows": _choice("Training rows that are clustered.", "model", "all", "user_last"),
    "estep_every": _count("Epochs from one clustering to the next.", "model"),
    "estep_warmup": _count("Epochs without clusters at the start.", "model", low=0),
    "kmeans_backend": _choice("Who clusters.", "model", "auto", "torch", "sklearn", "faiss"),
    "kmeans_iters": _count("Iterations of a clustering.", "model"),
    "kmeans_restarts": _count("Random starts of the first clustering; the best counts.", "model"),
    "kmeans_warm_start": _flag("Later clusterings go on from the centres of the one before.", "model"),
    # augmented views
    "aug_types": Key(
        (list,), "Operators that a view is drawn from, one per row.", "data", choices=("crop", "mask", "reorder")
    ),
    "aug_distinct": _flag("The two views of a row come from different operators, if there are two.", "data"),
    "aug_crop_ratio": Key((float,), "Share of a history that crop keeps, at least one item.", "data", low=0, high=1),
    "aug_mask_ratio": _probability("Share of a history's items that mask replaces.", "data"),
    "aug_reorder_ratio": Key((float,), "Share of a history that reorder shuffles.", "data", low=0, high=1),
    "aug_mask_token": _choice(
        "A masked item: a learned vector that attention sees, or the padding id, which it does not.",
        "data",
        "mask",
        "padding",
    ),
    # FAME
    "n_experts": _count("Experts.", "model"),
    "head_residual": _flag("Residual connection around the attention of a facet.", "model"),
    # AC-SASRec
    "use_order": _flag("Spatial calibrator: penalty of a key by its side of the query.", "model"),
    "use_distance": _flag("Spatial calibrator: penalty of a key by its distance.", "model"),
    "use_position_embedding": _flag("Position table at the input.", "model"),
    "use_adversarial": _flag("Adversarial calibrator.", "model"),
    "combine_option": _choice(
        "How attention and calibrated attention are mixed.", "model", "gate", "fixed", "annealing"
    ),
    "mask_loss_weight": _weight("Weight of the adversary's penalty on large masks.", "model"),
    # STAR-Rec
    "d_state": _count("States per channel of a state-space layer.", "model"),
    "d_conv": _count("Width of the causal convolution of a state-space layer.", "model"),
    "expand": _count("Channels of a state-space layer / hidden_size.", "model"),
    "expert_mult": _count("Width inside an expert / hidden_size.", "model"),
    "official": _flag("The released code's attn_mask_mode, sim_norm, ssm_stack and ssm_dt_init.", "model"),
    "attn_mask_mode": _choice("What attention may not see.", "model", "padding", "causal", "none"),
    "sim_norm": _choice("Similarity of items: normalised over time, or each vector.", "model", "time", "feature"),
    "ssm_stack": _choice(
        "State-space layers read the one below, or all the input.", "model", "stacked", "parallel_last"
    ),
    "ssm_dt_init": _choice("Initial step sizes: bias zero, or Mamba's.", "model", "zero", "mamba"),
    "moe_level": _choice("One gate of the experts per position or per sequence.", "model", "token", "sequence"),
    # FamouSRec
    "n_freq_layers": _count("Frequency-filter layers.", "model"),
    "third_expert": _choice("The expert beside attention and frequency filter.", "model", "gru", "conv"),
    "n_rnn_layers": _count("Layers of the GRU expert.", "model"),
    "router_input": _choice("What the router sees of a history.", "model", "spectrum", "mean", "last"),
    "router_topk": _count("Largest gates that are kept; 0 keeps all.", "model", low=0, high=2),
    "router_temperature": _positive("Divides the routing logits.", "model"),
    "freq_mask_ratio": _probability("Share of frequencies that the contrasted view loses.", "model"),
    "freq_mask_mode": _choice("Frequencies lost: drawn, or one end's band.", "model", "random", "low", "high"),
    "balance_weight": _weight("Weight of the guard against one-sided routing; at 0 it is absent.", "model"),
    # listed classes of RecBole
    "embedding_size": _count("Width of the item embeddings.", "model"),
    "num_layers": _count("GRU or state-space layers.", "model"),
    "dropout_prob": _probability("Dropout.", "model"),
    "dropout_probs": Key(
        (list,), "Dropout of embeddings and of the concatenation.", "model", low=0, high=1, open_high=True, of=(float,)
    ),
    "mask_ratio": Key(
        (float,), "Share of items replaced by the mask token.", "model", low=0, high=1, open_low=True, open_high=True
    ),
    "ft_ratio": Key((float,), "Share of rows that mask the last item only.", "model", low=0, high=1),
    "cloze": _choice("Masking rules: repaired, or RecBole's own.", "data", "repaired", "recbole"),
    "backbone": _choice("Encoder below the modules: causal, or bidirectional.", "model", "sasrec", "bert4rec"),
    "nv": _count("Vertical filters.", "model"),
    "nh": _count("Horizontal filters.", "model"),
    "reg_weight": _weight("L2 weight on embeddings and convolutions.", "model"),
}

_TEXT, _OPTIONAL_TEXT = Key((str,)), Key((str,), optional=True)
_FLAG, _OPTIONAL_FLAG = Key((bool,)), Key((bool,), optional=True)
_NAMES_OR_NONE = Key((list,), optional=True)
_MAPPING_OR_NONE = Key((dict,), optional=True)
_ANY = infer(None)

RECBOLE_KEYS: Mapping[str, Key] = {
    **dict.fromkeys(("model", "dataset", "data_path", "checkpoint_dir", "wandb_project", "valid_metric", "ip"), _TEXT),
    **dict.fromkeys(
        ("USER_ID_FIELD", "ITEM_ID_FIELD", "RATING_FIELD", "TIME_FIELD", "LABEL_FIELD", "NEG_PREFIX"), _TEXT
    ),
    **dict.fromkeys(
        ("ITEM_LIST_LENGTH_FIELD", "LIST_SUFFIX", "POSITION_FIELD", "field_separator", "seq_separator"), _TEXT
    ),
    **dict.fromkeys(("HEAD_ENTITY_ID_FIELD", "TAIL_ENTITY_ID_FIELD", "RELATION_ID_FIELD", "ENTITY_ID_FIELD"), _TEXT),
    **dict.fromkeys(
        ("dataset_save_path", "dataloaders_save_path", "transform", "config_file", "encoding"), _OPTIONAL_TEXT
    ),
    "rm_dup_inter": Key((str,), choices=("first", "last"), optional=True),
    **dict.fromkeys(("user_inter_num_interval", "item_inter_num_interval"), _OPTIONAL_TEXT),
    **dict.fromkeys(("entity_kg_num_interval", "relation_kg_num_interval"), _OPTIONAL_TEXT),
    **dict.fromkeys(
        ("use_gpu", "reproducibility", "show_progress", "save_dataset", "save_dataloaders", "log_wandb"), _FLAG
    ),
    **dict.fromkeys(
        ("shuffle", "require_pow", "enable_amp", "enable_scaler", "repeatable", "valid_metric_bigger"), _FLAG
    ),
    **dict.fromkeys(("filter_inter_by_user_or_item", "kg_reverse_r"), _FLAG),
    **dict.fromkeys(("normalize_all", "single_spec"), _OPTIONAL_FLAG),
    **dict.fromkeys(("normalize_field", "benchmark_filename"), _NAMES_OR_NONE),
    "additional_feat_suffix": Key((str, list), optional=True),
    **dict.fromkeys(
        ("alias_of_user_id", "alias_of_item_id", "alias_of_entity_id", "alias_of_relation_id"), _NAMES_OR_NONE
    ),
    **dict.fromkeys(
        ("load_col", "unload_col", "unused_col", "val_interval", "preload_weight", "threshold"), _MAPPING_OR_NONE
    ),
    **dict.fromkeys(("seq_len", "discretization", "clip_grad_norm", "train_neg_sample_args"), _MAPPING_OR_NONE),
    **dict.fromkeys(("gpu_id", "neg_sampling", "training_neg_sample_num"), _ANY),
    **{
        key: Key((int,), low=0, optional=True)
        for key in ("nproc", "world_size", "port", "offset", "group_offset", "local_rank")
    },
    **{
        key: Key((int,), low=1)
        for key in ("epochs", "train_batch_size", "eval_batch_size", "eval_step", "MAX_ITEM_LIST_LENGTH")
    },
    **{key: Key((int,), low=0) for key in ("stopping_step", "loss_decimal_place", "metric_decimal_place")},
    "worker": Key((int,), low=0, high=64),
    "seed": Key((int,), low=0, high=2**32 - 1),
    "state": Key(
        (str,),
        choices=("critical", "CRITICAL", "error", "ERROR", "warning", "WARNING", "info", "INFO", "debug", "DEBUG"),
    ),
    "numerical_features": Key((list,)),
    "learner": Key((str,), choices=("adam", "adamw", "sgd", "adagrad", "rmsprop")),
    "learning_rate": _positive(high=100),
    "weight_decay": _weight(high=100),
    "eval_args": Key((dict,)),
    "metrics": Key((str, list), of=(str,)),
    "topk": Key((int, list), low=1, of=(int,)),
    "tail_ratio": _positive(),
}


def is_text(name: str) -> bool:
    """Whether a setting is text and nothing else, so that no YAML form is meant by what looks like one."""
    key = SCHEMA.get(name) or RECBOLE_KEYS.get(name)
    return key is not None and key.types == (str,)
