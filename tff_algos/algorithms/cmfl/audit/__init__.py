"""Audit log of committee decisions, and its verification."""
