"""From a SavedModel to a feature plan, embedding tables and a dense ONNX.

The passes, in order; `pipeline.py` runs and checks them:

1. `load`                SavedModel → one inlined graph; tables and vocabularies stay references
2. `unroll`              loops of known length and decided branches become plain ops
3. `trim`                only what the outputs need
4. `fold`                dense weights and constant subgraphs become constants
5. `batchnorm`           multiply-adds melt into dense layers
6. `merge`               what is computed twice is computed once; views and casts that change nothing go
7. `cut/split`           the embedding frontier; what the CPU's feature plan can do is decided by `rules/`,
                         what it cannot is a piece for ONNX Runtime or TensorFlow (`cut/subgraphs`)
8. `dense`               the dense side as ONNX, row-wise, by `rows/rows_first` with the rows in front
9. `rows/user_once`      rows → [users, candidates], user side once; proves that no op mixes candidates; layer
                         normalizations become one op (`rows/layer_norms`)
10. `fp16/precision`     FP16 typed in the graph, as few FP32 nodes as scores and ranking allow

`ahead/user_ahead`, if asked for, cuts the finished model in two: one part for the user, one for slices.

The folders:

* `rules/`      what a tensor means on the CPU side (`values`), and the rules that find out (`lower*`)
* `cut/`        where the model is cut, and what runs in which engine
* `tables/`     embedding tables and vocabularies: into files, in fewer bytes, with little memory
* `rows/`       ONNX from rows to [users, candidates]: `row_*` carry ops over
* `fp16/`       the cast pass, the search, and the measures of a ranking
* `ahead/`      the user side ahead of time
* `reporting/`  the report as data, text and page

Here: TensorFlow's graph (`graph`, `shapes`, `partial`, `session_tables`, `known_values`, `tensor_lists`), the
spec against the model (`features`, `composites`, `samples`), and every pass against the original (`check`,
`attempts`, `acceptance`).
"""
