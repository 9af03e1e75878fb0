/** What a model without a template of its own gets, and `--chat-template chatml`. */
export const CHATML = `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}`;

/** The day that templates take for today: the one that those of Llama 3 name where they have no clock. */
export const TEMPLATE_DATE = '2024-07-26';
