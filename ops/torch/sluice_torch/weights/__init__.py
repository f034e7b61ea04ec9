"""Weights and adapters in files.

    adapters      adapters in files of PEFT
    checkpoint    a reader of safetensors files
    formats       matrices in the formats of checkpoints
    gguf          a reader of GGUF files
    gguf_blocks   types of tensors in GGUF files
    gguf_export   a writer of GGUF files
    gguf_models   whole models in GGUF files
    json_objects  a reader of JSON that may be damaged
    loading       load_experts()
    models        load_model()
    peft_config   the configuration of PEFT
    safetensors   a writer of safetensors files
    sources       the places of experts in files
"""
