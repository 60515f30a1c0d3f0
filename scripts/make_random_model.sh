#!/usr/bin/env bash
# Writes a Qwen3.5-shaped model with random bf16 weights: for measuring speed and memory at a size, never for answers.
#
#   scripts/make_random_model.sh SIZE TOKENIZER_DIR OUT_DIR        SIZE: 0.8b, 2b, 4b or 9b
#
# TOKENIZER_DIR holds Qwen3.5's tokenizer.json and chat_template.jinja.
set -euo pipefail

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -eq 3 ] || usage
size=$1 tokenizer=$2 out=$3
#            hidden layers heads kv intermediate k-heads v-heads tied
case $size in
    0.8b) set -- 1024 24 8 2 3584 16 16 true ;;
    2b) set -- 2048 24 8 2 6144 16 16 true ;;
    4b) set -- 2560 32 16 4 9216 16 32 true ;;
    9b) set -- 4096 32 16 4 12288 16 32 false ;;
    *) echo "make_random_model.sh: SIZE must be 0.8b, 2b, 4b or 9b, got $size" >&2; exit 2 ;;
esac
for file in tokenizer.json chat_template.jinja; do
    [ -f "$tokenizer/$file" ] || { echo "make_random_model.sh: $tokenizer/$file is missing" >&2; exit 3; }
done

mkdir -p "$out"
cp "$tokenizer/tokenizer.json" "$tokenizer/chat_template.jinja" "$out/"
cat > "$out/generation_config.json" <<JSON
{"eos_token_id": [248046, 248044], "pad_token_id": 248044}
JSON
cat > "$out/config.json" <<JSON
{
  "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "dtype": "bfloat16",
  "vocab_size": 248320, "hidden_size": $1, "num_hidden_layers": $2, "num_attention_heads": $3, "num_key_value_heads": $4,
  "intermediate_size": $5, "linear_num_key_heads": $6, "linear_num_value_heads": $7, "tie_word_embeddings": $8,
  "head_dim": 256, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
  "full_attention_interval": 4, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": false,
  "max_position_embeddings": 262144, "initializer_range": 0.02,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}
}
JSON
napmem=${NAPMEM:-${CARGO_TARGET_DIR:-target}/release/napmem}
exec "$napmem" init --from "$out" --out "$out" --dtype bfloat16 --seed 0
