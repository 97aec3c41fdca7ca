"""The shared tool record that four catalogs are normalised into."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ecoagent.schema.base import Record

Source = Literal["langchain", "crewai", "llamaindex", "n8n_official", "n8n_community"]
Catalog = Literal["langchain", "crewai", "llamaindex", "n8n"]
Granularity = Literal["package", "tool", "operation"]

SOURCES: tuple[Source, ...] = ("langchain", "crewai", "llamaindex", "n8n_official", "n8n_community")
CATALOGS: tuple[Catalog, ...] = ("langchain", "crewai", "llamaindex", "n8n")


def catalog_of(source: str) -> str:
    """Catalog a source belongs to (both n8n sources are one catalog)."""
    return "n8n" if source.startswith("n8n") else source


class AuthField(Record):
    """One input of a credential."""

    name: str = Field(description="Name of the field or environment variable.")
    secret: bool = Field(description="Whether the value must be kept secret.")
    required: bool = Field(description="Whether the tool cannot be used without it.")


class Auth(Record):
    """One way a tool authenticates."""

    type: str = Field(description="env, init_parameter, api_key, oauth2, basic, credential, …")
    name: str = Field(description="Environment variable, parameter or credential type name.")
    fields: list[AuthField] = Field(default_factory=list, description="Inputs of the credential.")
    required: bool | None = Field(default=None, description="Null where the catalog does not say.")
    origin: str = Field(
        description="Where it was read: class, env_vars, init, credentials, extends, code, docs."
    )


class Endpoint(Record):
    """A URL the tool calls."""

    url: str = Field(description="As written in the source, templates included.")
    origin: str = Field(description="Where it was read: request_defaults, credential_test, literal, class.")
    is_template: bool = Field(description="True where the URL holds placeholders.")


class Operation(Record):
    """One operation of a tool that offers several."""

    resource: str | None = Field(default=None, description="Resource the operation acts on.")
    operation: str = Field(description="Operation value.")
    name: str = Field(description="Label shown to a user.")
    description: str = Field(default="", description="What the operation does; empty where not said.")


class Deprecation(Record):
    """Deprecation as the catalog declares it."""

    state: bool = Field(description="True if the catalog declares the tool deprecated.")
    reason: str | None = Field(default=None, description="Why, in the catalog's words.")
    replacement: str | None = Field(default=None, description="What to use instead.")


class Provenance(Record):
    """Which bytes a record was read from."""

    artifact: str = Field(description="Package name.")
    artifact_version: str = Field(description="Package version.")
    sha256: str = Field(description="SHA-256 of the archive.")
    path: str = Field(description="Member of the archive.")
    backend: str = Field(description="client or http.")
    parser_version: str = Field(description="Version of the parser that read it.")


class ToolRecord(Record):
    """A tool in the shared schema (paper, Section 2). Missing facts are null, never invented."""

    id: str = Field(description="Stable identifier, see the README's table of id forms.")
    source: Source = Field(description="Catalog and, for n8n, whether official or community.")
    name: str = Field(description="Name an agent calls the tool by.")
    display_name: str | None = Field(default=None, description="Name shown to people.")
    description: str = Field(description="What the tool does; empty only in rejects.")
    description_origin: Literal["node", "class", "docstring", "package", "readme", "docs", "none"] = Field(
        description="Where the description was read."
    )
    kind: str = Field(description="tool, toolkit_operation, spec_function, node, trigger, …")
    granularity: Granularity = Field(description="Level the record stands for.")
    group_id: str = Field(description="Package, node or spec the record belongs to.")
    group_name: str | None = Field(default=None, description="Service, package or spec in words.")
    url: str | None = Field(default=None, description="Page of the tool or its package.")
    version: str | None = Field(default=None, description="Version of the tool.")
    auth: list[Auth] = Field(default_factory=list, description="Ways the tool authenticates.")
    auth_required: Literal["yes", "no", "unknown"] = Field(description="unknown where nothing is declared.")
    endpoints: list[Endpoint] = Field(default_factory=list, description="URLs called.")
    tags: list[str] = Field(default_factory=list, description="Categories and aliases, sorted.")
    deprecated: Deprecation = Field(description="Deprecation state.")
    licence: str | None = Field(default=None, description="SPDX identifier or the package's own words.")
    provenance: Provenance = Field(description="Which bytes this was read from.")
    parameter_names: list[str] = Field(default_factory=list, description="Names of the inputs, sorted.")
    input_schema: str | None = Field(default=None, description="JSON Schema of the inputs, as JSON text.")
    schema_origin: str | None = Field(
        default=None, description="args_schema, signature, declared, properties, specs."
    )
    operations: list[Operation] = Field(default_factory=list, description="Operations offered.")
    language: str | None = Field(default=None, description="ISO 639-1 code of the description, if detected.")
    docs_url: str | None = Field(default=None, description="Documentation page.")
    repository: str | None = Field(default=None, description="Source repository.")
    published_at: str | None = Field(default=None, description="UTC date of publication where known.")
    downloads: int | None = Field(default=None, description="Downloads where known.")
    usable_as_tool: bool | None = Field(default=None, description="n8n's flag.")
    trigger: bool | None = Field(default=None, description="Starts a workflow instead of acting in one.")
    hidden: bool | None = Field(default=None, description="Hidden from the catalog's own list.")
    verified: bool | None = Field(default=None, description="Verified by the catalog's owner.")
    quality_flags: list[str] = Field(default_factory=list, description="Flaws found, sorted.")


class Candidate(Record):
    """What a parser emits: every candidate, kept or rejected with a reason."""

    status: Literal["kept", "rejected"]
    reason: str | None = Field(default=None, description="template, abstract, no_description, hidden, …")
    detail: str | None = Field(default=None, description="What a reader needs to check the reason.")
    record: ToolRecord


class NormalizedTool(ToolRecord):
    """A kept tool after normalisation."""

    provider: str = Field(description="Who runs the endpoint; outages are pooled by it.")
    duplicate_group: str = Field(description="Smallest id of the set of records that are the same tool.")
    tool_text: str = Field(description="The text retrieval sees, see schema.text.tool_text.")


class ScoredTool(NormalizedTool):
    """A tool with its metadata reliability (Eq. 4-5)."""

    r_cons: float = Field(description="cos(SBERT(name), SBERT(description)), Eq. 4.")
    w_src: float = Field(description="Source credibility weight of Eq. 5.")
    r_qual: float = Field(description="Documentation quality, logistic(0.6 z_desc + 0.4 z_tag).")
    r_static: float = Field(description="Eq. 5, clipped to [0, 1].")
    reliable: bool = Field(description="r_static >= 0.8.")


class RejectedTool(ToolRecord):
    """A candidate that was not kept."""

    stage: str = Field(description="Stage that rejected it.")
    reason: str = Field(description="Reason code.")
    detail: str | None = Field(default=None, description="What a reader needs to check the reason.")
