"""What the sandboxes of a task or sample are like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from pydantic import BaseModel, ConfigDict

# When an evaluation is killed, its sandboxes end after this time.
LIFETIME = "24h"


class ClocheConfig(BaseModel):
    """Fields are those of a create (docs/api.md); `others` are further sandboxes of a sample by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Optional[str] = None
    template: Optional[str] = None
    checkpoint: Optional[str] = None
    isolation: Optional[str] = None
    cpus: Optional[float] = None
    memory: Union[int, str, None] = None
    disk: Union[int, str, None] = None
    pids: Optional[int] = None
    nofile: Optional[int] = None
    network: Union[str, Dict[str, Any], None] = None
    env: Optional[Dict[str, str]] = None
    secrets: Optional[List[Dict[str, Any]]] = None
    user: Optional[str] = None
    workdir: Optional[str] = None
    storage: Optional[str] = None
    timeout: Union[float, str] = LIFETIME
    others: Optional[Dict[str, "ClocheConfig"]] = None

    def create_options(self) -> Dict[str, Any]:
        return {k: v for k, v in self if v is not None and k != "others"}

    def sandboxes(self) -> Dict[str, ClocheConfig]:
        """By name; the first is the default one."""
        return {"default": self, **(self.others or {})}


def config_of(config: Union[BaseModel, str, None]) -> ClocheConfig:
    """From what a task says: a ClocheConfig, the name of a JSON file with its fields, or the name of a template."""
    if config is None:
        return ClocheConfig()
    if isinstance(config, ClocheConfig):
        return config
    if not isinstance(config, str):
        raise ValueError(f"expected a ClocheConfig, got {type(config).__name__}")
    if not config.endswith(".json"):
        return ClocheConfig(template=config)
    return ClocheConfig.model_validate(json.loads(Path(config).read_text(encoding="utf-8")))
