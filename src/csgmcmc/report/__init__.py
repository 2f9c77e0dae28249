"""Reports of a run as an HTML page."""

from typing import TYPE_CHECKING

from csgmcmc.discovery import lazy_attributes

if TYPE_CHECKING:
    from csgmcmc.report.comparison import Comparison, compare
    from csgmcmc.report.page import Report, report, report_folder

__all__ = ["Comparison", "Report", "compare", "report", "report_folder"]

__getattr__ = lazy_attributes(
    __name__,
    comparison=("Comparison", "compare"),
    page=("Report", "report", "report_folder"),
)
