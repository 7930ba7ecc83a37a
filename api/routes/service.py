"""The process itself."""

from __future__ import annotations

from fastapi import APIRouter

import decaysketch
from api import schemas

__all__ = ["router"]

router = APIRouter()


@router.get("/healthz", tags=["service"], summary="Is the process there")
async def healthz() -> schemas.Health:
    """Answers as long as the process serves."""
    return schemas.Health(version=decaysketch.__version__)
